package upstream

// askForReports has the endpoint be asked for load reports as a load balancer says, which may be nil; Set.mu is held.
func (e *Endpoint) askForReports(l *Balancing) {}
