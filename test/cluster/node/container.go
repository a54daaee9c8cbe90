package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/test/cluster/image"
	"github.com/moongate-dev/moongate/test/cluster/logs"
	"github.com/moongate-dev/moongate/test/cluster/sandbox"
)

// Restarts follow the kubelet: the first is at once, then 10 s, doubled to 5
// minutes, and from the beginning again after 10 minutes of running.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	forgiveAfter = 10 * time.Minute
	// retry is how soon what the container lacks (an image, a Secret) is looked for again.
	retry = 300 * time.Millisecond
)

// container is one container of a pod and its runs. The fields below mu's line
// are guarded by pod.mu.
type container struct {
	pod  *pod
	spec *corev1.Container
	init bool

	state, last corev1.ContainerState
	restarts    int32
	ready       bool
	started     bool
	logs        []*logs.File // the last two runs
}

// run runs the container, again and again as the restart policy says, until it
// shall not start any more. It reports whether the last run succeeded.
func (c *container) run() bool {
	var backoff time.Duration
	for {
		begin := time.Now()
		code, ran := c.once()
		if !ran {
			return false
		}
		if c.pod.live.Err() != nil || !c.again(code) {
			return code == 0
		}
		if time.Since(begin) > forgiveAfter {
			backoff = 0
		}
		if backoff > 0 {
			c.wait("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s", backoff, c.spec.Name))
			c.pod.warn("BackOff", "Back-off restarting failed container %s", c.spec.Name)
		}
		if !sleep(c.pod.live, backoff) {
			return code == 0
		}
		backoff = min(max(2*backoff, firstBackoff), maxBackoff)
		c.pod.update(func() { c.restarts++ })
	}
}

func (c *container) again(code int) bool {
	switch c.pod.restart {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return !c.init || code != 0
}

func (c *container) wait(reason, message string) {
	c.pod.update(func() {
		c.ready, c.started = false, false
		c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	})
}

// once waits until the container can start, starts it and waits for its end. It
// reports false if the pod ended before it started.
func (c *container) once() (code int, ran bool) {
	var spec sandbox.Spec
	for warned := ""; ; {
		var err error
		if spec, err = c.prepare(); err == nil {
			break
		}
		reason := "CreateContainerConfigError"
		if errors.Is(err, image.ErrUnknown) {
			reason = "ImagePullBackOff"
		}
		c.wait(reason, err.Error())
		if warned != err.Error() {
			warned = err.Error()
			c.pod.warn("Failed", "Error: %s", warned)
		}
		if !sleep(c.pod.live, retry) {
			return 0, false
		}
	}
	log, err := logs.New(c.logPath())
	if err != nil {
		return c.failed(time.Now(), err), true
	}
	defer log.Close()
	c.pod.update(func() {
		c.logs = append(c.logs, log)
		if len(c.logs) > 2 {
			c.logs = c.logs[1:]
		}
	})
	begin := time.Now()
	process, err := sandbox.Start(c.pod.node.Enter, spec, c.pod.network, log)
	if err != nil {
		return c.failed(begin, err), true
	}
	c.pod.event("Started", "Started container %s", c.spec.Name)
	return c.supervise(process, begin), true
}

func (c *container) logPath() string {
	object := c.pod.current()
	pod := strings.Join([]string{object.Namespace, object.Name, string(object.UID)}, "_")
	return filepath.Join(c.pod.node.LogDir, pod, c.spec.Name, strconv.Itoa(int(c.restarts))+".log")
}

func (c *container) failed(begin time.Time, err error) int {
	const code = 128
	c.pod.warn("Failed", "Error: %v", err)
	c.terminated(begin, code, 0, "StartError", err.Error())
	return code
}

func (c *container) terminated(begin time.Time, code int, signal syscall.Signal, reason, message string) {
	c.pod.update(func() {
		c.ready, c.started = false, false
		c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Signal: int32(signal), Reason: reason, Message: message,
			StartedAt: metav1.NewTime(begin), FinishedAt: metav1.Now(), ContainerID: c.id(),
		}}
		c.last = c.state
	})
}

// id is a name for the run; nothing outside the status uses it.
func (c *container) id() string {
	return fmt.Sprintf("process://%s/%s/%d", c.pod.uid, c.spec.Name, c.restarts)
}

// supervise probes the running container and waits for its end, which it brings
// about when the pod ends or a probe says so.
func (c *container) supervise(process *sandbox.Process, begin time.Time) int {
	running, stopProbes := context.WithCancel(context.Background())
	unhealthy := make(chan time.Duration, 1) // the grace to kill it with
	c.pod.update(func() {
		c.started = c.spec.StartupProbe == nil
		c.ready = c.started && c.spec.ReadinessProbe == nil
		c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(begin)}}
	})
	go c.watch(running, process, unhealthy)

	type end struct {
		code   int
		signal syscall.Signal
	}
	ended := make(chan end, 1)
	go func() {
		code, signal := process.Wait()
		ended <- end{code, signal}
	}()
	var e end
	select {
	case e = <-ended:
	case <-c.pod.live.Done():
		c.stop(process, c.pod.dead)
		e = <-ended
	case grace := <-unhealthy:
		deadline, cancel := context.WithTimeout(c.pod.dead, grace)
		c.stop(process, deadline)
		e = <-ended
		cancel()
	}
	stopProbes()
	reason := "Completed"
	if e.code != 0 {
		reason = "Error"
	}
	c.terminated(begin, e.code, e.signal, reason, "")
	return e.code
}

// stop asks the container to end, and ends it when deadline does. It returns at
// once after asking.
func (c *container) stop(process *sandbox.Process, deadline context.Context) {
	c.pod.event("Killing", "Stopping container %s", c.spec.Name)
	stopped := context.AfterFunc(deadline, func() { process.Signal(syscall.SIGKILL) })
	_ = stopped // a signal to an ended process is nothing
	if hook := c.spec.Lifecycle; hook != nil && hook.PreStop != nil {
		switch {
		case hook.PreStop.Sleep != nil:
			sleep(deadline, seconds(hook.PreStop.Sleep.Seconds))
		case hook.PreStop.Exec != nil:
			if err := execIn(deadline, process, hook.PreStop.Exec.Command); err != nil {
				c.pod.warn("FailedPreStopHook", "PreStop: %v", err)
			}
		}
	}
	process.Signal(syscall.SIGTERM)
}

// watch runs the container's probes while it runs: the startup probe first, then
// the others side by side.
func (c *container) watch(running context.Context, process *sandbox.Process, unhealthy chan<- time.Duration) {
	fail := func(kind, why string, probe *corev1.Probe) {
		if c.pod.live.Err() != nil {
			return // it is being stopped already
		}
		c.pod.warn("Unhealthy", "%s probe failed: %s", kind, why)
		grace := c.pod.grace()
		if probe.TerminationGracePeriodSeconds != nil {
			grace = seconds(*probe.TerminationGracePeriodSeconds)
		}
		select {
		case unhealthy <- grace:
		default:
		}
	}
	if probe := c.spec.StartupProbe; probe != nil {
		starting, cancel := context.WithCancel(running)
		c.probe(starting, probe, process, func(ok bool, why string) {
			if ok {
				c.pod.update(func() { c.started, c.ready = true, c.spec.ReadinessProbe == nil })
			} else {
				fail("Startup", why, probe)
			}
			cancel()
		})
		cancel()
	}
	if probe := c.spec.LivenessProbe; probe != nil {
		go c.probe(running, probe, process, func(ok bool, why string) {
			if !ok {
				fail("Liveness", why, probe)
			}
		})
	}
	if probe := c.spec.ReadinessProbe; probe != nil {
		c.probe(running, probe, process, func(ok bool, why string) {
			if c.pod.update(func() { c.ready = ok }) && !ok {
				c.pod.warn("Unhealthy", "Readiness probe failed: %s", why)
			}
		})
	}
}

// prepare puts the container together from the pod, the image and the volumes.
func (c *container) prepare() (sandbox.Spec, error) {
	object := c.pod.current()
	from, err := c.pod.node.Images.Get(c.spec.Image)
	if err != nil {
		return sandbox.Spec{}, err
	}
	spec := sandbox.Spec{
		Stage: c.pod.stage(), Hostname: c.pod.hostname(), HostNetwork: object.Spec.HostNetwork,
		Dir: from.WorkingDir,
	}
	if c.spec.WorkingDir != "" {
		spec.Dir = c.spec.WorkingDir
	}
	if spec.Env, err = c.pod.environment(c.spec, from.Env); err != nil {
		return spec, err
	}
	spec.Argv = c.arguments(from, spec.Env)
	if err := secure(&spec, object, c.spec, from); err != nil {
		return spec, err
	}
	spec.Mounts, err = c.mounts(from, spec.ReadOnlyRoot)
	return spec, err
}

func (c *container) arguments(from image.Image, env []string) []string {
	command, args := c.spec.Command, c.spec.Args
	if len(command) == 0 {
		command = from.Entrypoint
		if len(args) == 0 {
			args = from.Cmd
		}
	}
	values := map[string]string{}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		values[name] = value
	}
	var argv []string
	for _, argument := range slices.Concat(command, args) {
		argv = append(argv, expand(argument, values))
	}
	return argv
}

func (c *container) mounts(from image.Image, readOnlyRoot bool) ([]sandbox.Mount, error) {
	var mounts []sandbox.Mount
	for target, source := range from.Files {
		mounts = append(mounts, sandbox.Mount{Source: source, Target: target, ReadOnly: true})
	}
	for _, name := range systemFiles {
		mounts = append(mounts, sandbox.Mount{Source: filepath.Join(c.pod.dir, name), Target: "/etc/" + name, ReadOnly: readOnlyRoot})
	}
	for _, m := range c.spec.VolumeMounts {
		index := slices.IndexFunc(c.pod.current().Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if index < 0 {
			return nil, fmt.Errorf("no volume %s", m.Name)
		}
		mounts = append(mounts, sandbox.Mount{
			Source: c.pod.volumeDir(m.Name), Target: m.MountPath,
			ReadOnly: m.ReadOnly || c.pod.current().Spec.Volumes[index].EmptyDir == nil,
		})
	}
	// What lies in a folder is mounted after the folder.
	slices.SortStableFunc(mounts, func(a, b sandbox.Mount) int { return strings.Compare(a.Target, b.Target) })
	return mounts, nil
}
