package provision

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// How many Gateways may have their proxies replaced at a time: a new version of the controller, or parameters of a class, affect all
// Gateways, whose new proxies would start on the same nodes at once.
const (
	rolloutsAtLeast = 5
	rolloutsPercent = 5 // of the Gateways that run, if that is more
)

// rolloutRetry is the maximum time after which a Gateway that waits for its turn checks again; the end of another rollout makes it
// check earlier.
const rolloutRetry = 30 * time.Second

// restarts reports whether a change replaces proxies that serve: template, the hash of the pods' template, has changed, or another
// writer has changed one of its fields. If no proxy serves, the change interrupts nothing, and may resolve the problem.
func restarts(w workload, template string, differs map[string]string) bool {
	if w.ready == 0 {
		return false
	}
	if w.object.GetAnnotations()[annotationTemplate] != template {
		return true
	}
	for path := range differs {
		if strings.HasPrefix(path, "spec.template.") {
			return true
		}
	}
	return false
}

// rollingOutOf reports whether a workload is replacing its pods. One that makes no progress within its progress deadline does not
// count: its old pods serve, and it must not delay all others. The caller must hold s.mu.
func (s *store) rollingOutOf(object Object, now time.Time) bool {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return rollingOut(o)
	case *appsv1.DaemonSet:
		return s.daemonSetRollingOut(o, now)
	}
	return false
}

// progressDeadline is how long a DaemonSet may make no progress in replacing its pods, or a workload in replacing another one:
// Kubernetes has such a deadline for Deployments only, 10 minutes by default.
const progressDeadline = 10 * time.Minute

// progress is how far a DaemonSet has replaced its pods, and since when.
type progress struct {
	generation int64
	updated    int32
	since      time.Time
}

// daemonSetRollingOut is rollingOut for a DaemonSet. The caller must hold s.mu.
func (s *store) daemonSetRollingOut(d *appsv1.DaemonSet, now time.Time) bool {
	n := objectName{kindDaemonSet, d.Namespace + "/" + d.Name}
	p, known := s.progress[n]
	begun := d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled >= d.Status.DesiredNumberScheduled
	// A proxy that is missing although none is being replaced belongs to a node that is not ready, or was drained.
	if begun && (d.Status.NumberUnavailable == 0 || !known || p.generation != d.Generation || now.Sub(p.since) >= progressDeadline) {
		delete(s.progress, n)
		return false
	}
	if !known || p.generation != d.Generation || p.updated != d.Status.UpdatedNumberScheduled {
		p = progress{d.Generation, d.Status.UpdatedNumberScheduled, now}
		s.progress[n] = p
	}
	return now.Sub(p.since) < progressDeadline
}

// rollingOut reports whether a Deployment is replacing its pods.
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

// rollingOut returns the Gateways with a workload that is replacing its pods, and the number of all Gateways with objects.
func (s *store) rollingOut() (rolling map[gatewayName]bool, gateways int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rolling = map[gatewayName]bool{}
	now := time.Now()
	for g, objects := range s.gateways {
		for _, object := range objects {
			if s.rollingOutOf(object, now) {
				rolling[g] = true
			}
		}
	}
	return rolling, len(s.gateways)
}

// beginRollout reports whether a Gateway may have its proxies replaced now. If so, end must be called once the store contains the
// changed workload; otherwise the Gateway is queued again when another rollout has ended.
func (p *Provisioner) beginRollout(g gatewayName) (end func(), ok bool) {
	p.rollouts.Lock()
	defer p.rollouts.Unlock()
	rolling, gateways := p.store.rollingOut()
	for starting := range p.starting {
		rolling[starting] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.woken, g) // if it waits again, its turn has not come
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

// wakeWaiting queues one Gateway that waits for its turn. The caller must hold p.mu.
func (p *Provisioner) wakeWaiting() {
	for g := range p.waiting {
		delete(p.waiting, g)
		p.woken[g] = true
		p.work.Add(g)
		return
	}
}

// passTurn wakes another Gateway in place of one that was woken and did not try to begin a rollout, because it was deleted or changed
// meanwhile, or could not be applied.
func (p *Provisioner) passTurn(g gatewayName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.woken[g] {
		delete(p.woken, g)
		p.wakeWaiting()
	}
}

// allowUnplaced returns wanted, the form in which object is applied, with a higher maxUnavailable if proxies with hostNetwork cannot
// be scheduled because every node has one already. These count as unavailable, so with the usual maxUnavailable of 1 an update would
// never begin. Their number is added when an update begins, or when one has made no progress for long, until the update has ended.
func (p *Provisioner) allowUnplaced(g gatewayName, object Object, wanted map[string]any, live Object) (map[string]any, error) {
	d, ok := object.(*appsv1.Deployment)
	now, there := live.(*appsv1.Deployment)
	if !ok || !there || !d.Spec.Template.Spec.HostNetwork || d.Spec.Strategy.RollingUpdate == nil {
		return wanted, nil
	}
	most := d.Spec.Strategy.RollingUpdate.MaxUnavailable
	if most == nil || *most != intstr.FromInt32(1) { // a patch of the class sets another one
		return wanted, nil
	}
	allowed := int32(1)
	switch r := now.Spec.Strategy.RollingUpdate; {
	case rollingOut(now):
		if r != nil && r.MaxUnavailable != nil && r.MaxUnavailable.Type == intstr.Int {
			allowed = max(allowed, r.MaxUnavailable.IntVal)
		}
	case now.Annotations[annotationTemplate] != appliedHash(wanted, annotationTemplate), now.Status.UpdatedReplicas < now.Status.Replicas:
		for _, pod := range observe(p.store.of(g), now.Labels[gwv1.GatewayClassNameLabelKey], problem{}).pods {
			if unschedulable(pod) != nil {
				allowed++
			}
		}
	}
	if allowed == 1 {
		return wanted, nil
	}
	d = d.DeepCopy()
	d.Spec.Strategy.RollingUpdate.MaxUnavailable = pointer(intstr.FromInt32(allowed))
	return encode(d)
}
