package controller

import "github.com/moongate-dev/moongate/internal/observe"

// Stats returns the state of this replica, for metrics.
func (c *Controller) Stats() observe.ControllerStats {
	deliveries, statuses := c.loop.Status(), c.writer.Stats()
	s := observe.ControllerStats{
		Leading: deliveries.Leading, Held: deliveries.Held, ReadAway: c.source.Away(), WriteAway: statuses.Away,
		StatusWrites: statuses.Writes, StatusFailures: map[observe.StatusFailure]uint64{}, Reconciled: map[string]observe.ReconcileStats{},
	}
	for f, n := range statuses.Failures {
		s.StatusFailures[observe.StatusFailure(f)] = n
	}
	for part, failures := range map[string]func() (uint64, int){"provision": c.provisioner.Failures, "select": c.selectors.Failures} {
		var r observe.ReconcileStats
		r.Errors, r.Failing = failures()
		s.Reconciled[part] = r
	}
	s.EventsWritten, s.EventsDropped = c.events.Stats()
	if !s.Leading {
		return s
	}
	s.Conditions = map[observe.ObjectCondition]int{}
	for condition, n := range c.writer.Conditions() {
		s.Conditions[observe.ObjectCondition{Kind: condition.Kind, Type: condition.Type, Status: string(condition.Status)}] = n
	}
	return s
}

// SourceProblems returns the number of objects of each kind that cannot be used, for metrics.
func (c *Controller) SourceProblems() map[string]int { return c.source.Problems() }
