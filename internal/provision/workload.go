package provision

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// workload contains what Deployments and DaemonSets have in common.
type workload struct {
	object   Object
	name     objectName
	template *corev1.PodTemplateSpec
	// wanted is the number of proxies that should run, negative if not known yet, ready how many are ready, and available how many
	// have been for minReadySeconds.
	wanted, ready, available int32
}

// workloadOf returns an object as a workload; ok is false for other kinds.
func workloadOf(object Object) (workload, bool) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		w := workload{o, objectName{kindDeployment, o.Name}, &o.Spec.Template, 1, o.Status.ReadyReplicas, o.Status.AvailableReplicas}
		if o.Spec.Replicas != nil {
			w.wanted = *o.Spec.Replicas
		}
		return w, true
	case *appsv1.DaemonSet:
		w := workload{o, objectName{kindDaemonSet, o.Name}, &o.Spec.Template, o.Status.DesiredNumberScheduled, o.Status.NumberReady, o.Status.NumberAvailable}
		if o.Status.ObservedGeneration < o.Generation {
			w.wanted = -1
		}
		return w, true
	}
	return workload{}, false
}

// serves reports whether proxies of a workload serve, or none are wanted.
func (w workload) serves() bool {
	return w.ready > 0 || w.name.kind == kindDeployment && w.wanted == 0
}

// replaces reports whether a workload has taken the place of another one of its Gateway, so that this one can go: every proxy is available, at
// least as many as spec wants at once. In the network of their nodes two proxies have no room on one node, so those are not waited for that the other one's
// proxies, on so many nodes, keep away.
func (w workload) replaces(other workload, nodes int32, spec *translate.ProxySpec) bool {
	wanted := w.wants(spec)
	switch {
	case wanted < 0, w.name.kind == kindDaemonSet && wanted == 0: // on no node, there would be nothing
		return false
	case shareNodes(w, other):
		return w.available >= wanted-nodes
	}
	return w.available >= wanted
}

// wants returns the number of proxies that should run, negative if not known yet.
func (w workload) wants(spec *translate.ProxySpec) int32 {
	wanted := w.wanted
	if r := spec.Parameters.Replicas; r != nil && wanted >= 0 {
		wanted = max(wanted, *r) // it may just have been changed
	}
	if a := spec.Parameters.Autoscaling; a != nil && a.MinReplicas != nil && wanted >= 0 {
		wanted = max(wanted, *a.MinReplicas) // the autoscaler will set it
	}
	return wanted
}

// shareNodes reports whether two workloads use hostNetwork, so that a node has room for a proxy of only one of them.
func shareNodes(a, b workload) bool {
	return a.template.Spec.HostNetwork && b.template.Spec.HostNetwork
}

// withoutEnding returns a workload without the ready proxies that are terminating: a DaemonSet counts them, a Deployment does not.
func (w workload) withoutEnding(pods []*corev1.Pod) workload {
	if w.name.kind != kindDaemonSet {
		return w
	}
	for _, pod := range pods {
		if podReady(pod) && pod.DeletionTimestamp != nil {
			w.available--
		}
	}
	return w
}

// podsOf returns the pods of a workload. Those of a Deployment have the label of their ReplicaSet; their owners are not kept.
func (w workload) podsOf(running map[objectName]Object) (pods []*corev1.Pod) {
	for _, object := range running {
		pod, ok := object.(*corev1.Pod)
		if !ok || classOf(pod) != classOf(w.object) {
			continue
		}
		if _, ok := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; ok == (w.name.kind == kindDeployment) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// nodesOf returns the number of nodes of pods.
func nodesOf(pods []*corev1.Pod) int32 {
	nodes := map[string]bool{}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			nodes[pod.Spec.NodeName] = true
		}
	}
	return int32(len(nodes))
}

// starting reports whether a proxy may become ready without another one making room for it.
func starting(pod *corev1.Pod) bool {
	return !podReady(pod) && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && unschedulable(pod) == nil
}

// mostReady returns how many proxies of a workload of a Gateway are ready, but for the workload of that name: those of several serve the same requests.
func mostReady(running map[objectName]Object, but objectName) (ready int32) {
	for n, object := range running {
		if w, ok := workloadOf(object); ok && n != but {
			ready = max(ready, w.ready)
		}
	}
	return ready
}
