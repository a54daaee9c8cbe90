package provision

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// How many Gateways may have their proxies replaced at a time: a new version of the controller, or parameters of a class, concern
// all Gateways, whose new proxies would start on the same nodes at once.
const (
	rolloutsAtLeast = 5
	rolloutsPercent = 5 // of the Gateways that run, where that is more
)

// rolloutRetry is how long, at most, a Gateway waits for its turn without looking; the end of another rollout wakes it earlier.
const rolloutRetry = 30 * time.Second

// restarts reports whether a change replaces proxies that serve: template, the hash of the pods' template, is another one, or somebody
// changed a field of that. Where none serves nobody is disturbed, and the change may be what helps.
func restarts(d *appsv1.Deployment, template string, differs map[string]string) bool {
	if d.Status.ReadyReplicas == 0 {
		return false
	}
	if d.Annotations[annotationTemplate] != template {
		return true
	}
	for path := range differs {
		if strings.HasPrefix(path, "spec.template.") {
			return true
		}
	}
	return false
}

// rollingOut reports whether a Deployment is replacing its pods. One that does not come forward within its progress deadline counts no more:
// its old pods serve, and it must not hold up all others.
func rollingOut(d *appsv1.Deployment) bool {
	if d.Status.ObservedGeneration < d.Generation {
		return true
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return c.Status == corev1.ConditionTrue && c.Reason != "NewReplicaSetAvailable"
		}
	}
	return false
}

// rollingOut is the Gateways with a Deployment that is replacing its pods, and the number of all that have anything.
func (s *store) rollingOut() (rolling map[gatewayName]bool, gateways int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rolling = map[gatewayName]bool{}
	for g, objects := range s.gateways {
		for _, object := range objects {
			if d, ok := object.(*appsv1.Deployment); ok && rollingOut(d) {
				rolling[g] = true
			}
		}
	}
	return rolling, len(s.gateways)
}

// beginRollout reports whether it is a Gateway's turn to have its proxies replaced. If so end is to be called once the store has
// the changed Deployment; otherwise the Gateway is looked at again when another one is done.
func (p *Provisioner) beginRollout(g gatewayName) (end func(), ok bool) {
	p.rollouts.Lock()
	defer p.rollouts.Unlock()
	rolling, gateways := p.store.rollingOut()
	for starting := range p.starting {
		rolling[starting] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !rolling[g] && len(rolling) >= max(rolloutsAtLeast, gateways*rolloutsPercent/100) {
		p.waiting[g] = true
		return nil, false
	}
	delete(p.waiting, g)
	p.starting[g] = true
	return func() {
		p.rollouts.Lock()
		defer p.rollouts.Unlock()
		delete(p.starting, g)
	}, true
}

// wakeWaiting lets one Gateway that waits for its turn look again. p.mu is held.
func (p *Provisioner) wakeWaiting() {
	for g := range p.waiting {
		delete(p.waiting, g)
		p.work.Add(g)
		return
	}
}
