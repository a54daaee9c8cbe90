package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// statusWriter remembers what was written last.
type statusWriter struct {
	started     metav1.Time
	transitions map[corev1.PodConditionType]corev1.PodCondition
	sent        []byte
}

// fingerprint says everything that status shows; the caller holds mu.
func (p *pod) fingerprint() string {
	var text strings.Builder
	fmt.Fprint(&text, p.initialized, p.networked)
	for _, c := range p.containers {
		state, _ := json.Marshal(c.state) // pointers within: their contents count
		fmt.Fprintf(&text, " %t %t %d %s", c.ready, c.started, c.restarts, state)
	}
	return text.String()
}

// writeStatus writes the pod's status whenever it changes, and once more when the pod is over.
func (p *pod) writeStatus(over <-chan struct{}) {
	p.status.started = metav1.Now()
	p.status.transitions = map[corev1.PodConditionType]corev1.PodCondition{}
	for {
		last := false
		select {
		case <-p.dirty:
		case <-over:
			last = true
		}
		for {
			err := p.patchStatus()
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				break // gone, or another pod has its name
			}
			p.node.Log.Printf("status of pod %s: %v", p.uid, err)
			if last && p.dead.Err() != nil && p.node.stopping.Err() != nil {
				return
			}
			time.Sleep(retry)
		}
		if last {
			return
		}
	}
}

func (p *pod) patchStatus() error {
	p.mu.Lock()
	object := p.object
	status := p.makeStatus()
	p.mu.Unlock()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": status})
	if err != nil || bytes.Equal(patch, p.status.sent) {
		return err
	}
	_, err = p.node.Client.CoreV1().Pods(object.Namespace).Patch(context.Background(), object.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		p.status.sent = patch
	}
	return err
}

// makeStatus computes the status from the containers; the caller holds mu.
func (p *pod) makeStatus() corev1.PodStatus {
	status := corev1.PodStatus{
		ObservedGeneration: p.object.Generation, StartTime: &p.status.started,
		HostIP: p.host.Address.String(), HostIPs: []corev1.HostIP{{IP: p.host.Address.String()}},
	}
	if p.networked {
		status.PodIP = p.address.String()
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	ready := p.initialized
	for _, c := range p.containers {
		cs := c.status()
		if c.init {
			status.InitContainerStatuses = append(status.InitContainerStatuses, cs)
			continue
		}
		status.ContainerStatuses = append(status.ContainerStatuses, cs)
		ready = ready && c.ready
	}
	status.Phase = p.phase()
	gates := ready
	for _, gate := range p.object.Spec.ReadinessGates {
		gates = gates && holdsTrue(p.object.Status.Conditions, gate.ConditionType)
	}
	over := status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	reason := "ContainersNotReady"
	if over {
		reason = "PodCompleted"
	}
	status.Conditions = []corev1.PodCondition{
		p.condition(corev1.PodReadyToStartContainers, p.networked && !over, ""),
		p.condition(corev1.PodInitialized, p.initialized, "ContainersNotInitialized"),
		p.condition(corev1.ContainersReady, ready, reason),
		p.condition(corev1.PodReady, gates, reason),
	}
	return status
}

func holdsTrue(conditions []corev1.PodCondition, kind corev1.PodConditionType) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// condition keeps the transition time while the status stays.
func (p *pod) condition(kind corev1.PodConditionType, is bool, reason string) corev1.PodCondition {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: p.object.Generation}
	if !is {
		c.Status, c.Reason = corev1.ConditionFalse, reason
	}
	c.LastTransitionTime = metav1.Now()
	if before, ok := p.status.transitions[kind]; ok && before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	p.status.transitions[kind] = c
	return c
}

// phase is Pending until every container has started once, and Succeeded or
// Failed once none will start again.
func (p *pod) phase() corev1.PodPhase {
	running, failed, waiting := false, false, false
	for _, c := range p.containers {
		t := c.state.Terminated
		switch {
		case c.init && t != nil && t.ExitCode != 0 && !c.again(int(t.ExitCode)):
			return corev1.PodFailed
		case c.init:
		case c.state.Running != nil:
			running = true
		case t != nil && (p.live.Err() != nil || !c.again(int(t.ExitCode))):
			failed = failed || t.ExitCode != 0
		case t != nil, c.last.Terminated != nil:
			running = true // between two runs
		default:
			waiting = true
		}
	}
	switch {
	case waiting && p.live.Err() == nil:
		return corev1.PodPending
	case running:
		return corev1.PodRunning
	case failed || waiting:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func (c *container) status() corev1.ContainerStatus {
	started := c.started
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image, State: c.state, LastTerminationState: c.last,
		Ready: c.ready, Started: &started, RestartCount: c.restarts,
	}
	if c.init {
		status.Ready = c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
	}
	if c.state.Terminated != nil {
		status.LastTerminationState = corev1.ContainerState{}
	}
	if c.state.Running != nil {
		status.ContainerID = c.id()
	}
	return status
}
