package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/test/cluster/sandbox"
)

// systemFiles are written per pod and appear in /etc of each of its containers.
var systemFiles = []string{"hostname", "hosts", "resolv.conf"}

// pod is one pod of the node, from the moment it was scheduled here to its end.
type pod struct {
	node    *Node
	host    *Host
	uid     types.UID
	dir     string // of its volumes and system files
	restart corev1.RestartPolicy

	// live ends when the pod shall end, dead when its grace is over.
	live, dead context.Context
	stop, kill context.CancelFunc
	ended      chan struct{}

	// Set by the pod's own goroutine before its first container starts.
	address netip.Addr
	network *sandbox.Network

	volumes sync.Mutex // one goroutine at a time writes them
	mounted map[string]bool
	tokens  map[string]token
	refresh chan struct{} // holds one if an object of a volume may have changed

	mu          sync.Mutex
	object      *corev1.Pod
	containers  []*container // initContainers first
	initialized bool
	networked   bool
	deadline    *time.Timer
	dirty       chan struct{} // holds one if status is to be written
	status      statusWriter
}

func newPod(n *Node, host *Host, object *corev1.Pod) *pod {
	p := &pod{
		node: n, host: host, uid: object.UID, object: object, restart: object.Spec.RestartPolicy,
		dir: filepath.Join(n.Dir, string(object.UID)), mounted: map[string]bool{}, tokens: map[string]token{},
		ended: make(chan struct{}), refresh: make(chan struct{}, 1), dirty: make(chan struct{}, 1),
	}
	p.live, p.stop = context.WithCancel(context.Background())
	p.dead, p.kill = context.WithCancel(context.Background())
	add := func(specs []corev1.Container, init bool) {
		for i := range specs {
			c := &container{pod: p, spec: &specs[i], init: init}
			c.state.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
			if init || len(object.Spec.InitContainers) > 0 {
				c.state.Waiting.Reason = "PodInitializing"
			}
			p.containers = append(p.containers, c)
		}
	}
	add(object.Spec.InitContainers, true)
	add(object.Spec.Containers, false)
	return p
}

// current is the pod as last seen from the API server.
func (p *pod) current() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.object
}

// update changes the pod's state under its lock, and reports whether what the
// status says has changed; then it will be written.
func (p *pod) update(change func()) bool {
	p.mu.Lock()
	before := p.fingerprint()
	change()
	changed := before != p.fingerprint()
	p.mu.Unlock()
	if changed {
		p.touch()
	}
	return changed
}

func (p *pod) touch() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// seen takes over a newer version of the pod; one with a deletion time ends it.
func (p *pod) seen(object *corev1.Pod) {
	p.mu.Lock()
	p.object = object
	p.mu.Unlock()
	p.touch() // a readiness gate may have changed
	p.changed()
	if object.DeletionTimestamp != nil && object.DeletionGracePeriodSeconds != nil {
		p.terminate(seconds(*object.DeletionGracePeriodSeconds))
	}
}

// changed lets volumes and the downward API look again.
func (p *pod) changed() {
	select {
	case p.refresh <- struct{}{}:
	default:
	}
}

// terminate ends the pod; a later call may shorten the grace.
func (p *pod) terminate(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	at := time.AfterFunc(grace, p.kill)
	if p.deadline != nil {
		p.deadline.Stop()
	}
	p.deadline = at
}

func (p *pod) grace() time.Duration {
	if s := p.current().Spec.TerminationGracePeriodSeconds; s != nil {
		return seconds(*s)
	}
	return 30 * time.Second
}

func (p *pod) hostname() string {
	object := p.current()
	name := object.Spec.Hostname
	if name == "" {
		name = object.Name
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-.")
}

// run is the pod's life.
func (p *pod) run() {
	defer close(p.ended)
	over := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { p.writeStatus(over) })
	if p.prepare() {
		p.runContainers()
	}
	if err := p.release(); err != nil {
		p.warn("FailedKillPod", "%v", err)
	}
	<-p.live.Done() // a pod whose containers have all ended stays until it is deleted
	p.kill()
	close(over)
	writer.Wait()
	p.remove()
}

// prepare gets the pod's network and volumes; false if it ended before.
func (p *pod) prepare() bool {
	p.touch()
	for warned := ""; ; {
		err := refuse(p.current())
		reason := "Unsupported"
		if err == nil {
			reason, err = "ContainerCreating", p.create()
		}
		if err == nil {
			return p.live.Err() == nil
		}
		p.update(func() {
			for _, c := range p.containers {
				c.state.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}
			}
		})
		if warned != err.Error() {
			warned = err.Error()
			p.warn("FailedCreatePod", "%s", warned)
		}
		if !sleep(p.live, retry) {
			return false
		}
	}
}

func (p *pod) create() error {
	if err := os.MkdirAll(p.stage(), 0o755); err != nil {
		return err
	}
	if err := p.connect(); err != nil {
		return err
	}
	if err := p.writeSystemFiles(); err != nil {
		return err
	}
	p.volumes.Lock()
	defer p.volumes.Unlock()
	return p.mountVolumes(p.live)
}

// stage is an empty folder; every container mounts its root on it, unseen by the others.
func (p *pod) stage() string { return filepath.Join(p.dir, "root") }

func (p *pod) connect() error {
	if p.address.IsValid() {
		return nil
	}
	object := p.current()
	if object.Spec.HostNetwork {
		p.address = p.host.Address
	} else {
		address, err := p.host.addresses.take()
		if err != nil {
			return err
		}
		network, err := p.makeNetwork(address)
		if err != nil {
			p.host.addresses.give(address)
			return err
		}
		p.address, p.network = address, network
	}
	p.update(func() { p.networked = true })
	return nil
}

// makeNetwork leaves nothing behind if it fails, so that it can be tried again.
func (p *pod) makeNetwork(address netip.Addr) (*sandbox.Network, error) {
	network, err := sandbox.NewNetwork(fmt.Sprintf("pod%x", address.As4()), address, p.host.Address)
	if err != nil {
		return nil, err
	}
	if err = p.setSysctls(network); err == nil && p.host != p.node.Hosts[0] {
		err = addHairpin(address)
	}
	if err != nil {
		return nil, errors.Join(err, network.Close())
	}
	return network, nil
}

func (p *pod) setSysctls(network *sandbox.Network) error {
	security := p.current().Spec.SecurityContext
	if security == nil {
		return nil
	}
	for _, sysctl := range security.Sysctls {
		path := "/proc/sys/" + strings.ReplaceAll(sysctl.Name, ".", "/")
		if err := network.SetSysctl(path, sysctl.Value); err != nil {
			return fmt.Errorf("sysctl %s: %w", sysctl.Name, err)
		}
	}
	return nil
}

func (p *pod) runContainers() {
	stopRefresh := make(chan struct{})
	var background, running sync.WaitGroup
	background.Go(func() { p.keepVolumes(stopRefresh) })
	defer background.Wait()
	defer close(stopRefresh)

	rest := p.containers
	for len(rest) > 0 && rest[0].init {
		if !rest[0].run() {
			return
		}
		rest = rest[1:]
	}
	p.update(func() {
		p.initialized = true
		for _, c := range rest {
			c.state.Waiting.Reason = "ContainerCreating"
		}
	})
	for _, c := range rest {
		running.Go(func() { c.run() })
	}
	running.Wait()
}

// keepVolumes follows the objects that volumes are made of, and renews tokens.
func (p *pod) keepVolumes(stop <-chan struct{}) {
	for {
		p.volumes.Lock()
		err := p.writeVolumes(p.dead)
		next := p.nextToken()
		p.volumes.Unlock()
		if err != nil && p.live.Err() == nil {
			p.warn("FailedMount", "%v", err)
			next = min(next, 5*time.Second)
		}
		select {
		case <-stop:
			return
		case <-p.refresh:
		case <-time.After(next):
		}
	}
}

// release gives back what the pod holds on the node.
func (p *pod) release() error {
	var err error
	if p.network != nil {
		err = p.network.Close()
		if p.host != p.node.Hosts[0] {
			err = errors.Join(err, removeHairpin(p.address))
		}
		p.host.addresses.give(p.address)
	}
	p.volumes.Lock()
	defer p.volumes.Unlock()
	return errors.Join(err, p.unmountVolumes())
}

// remove lets the API server forget the pod, after its last status was written.
func (p *pod) remove() {
	object := p.current()
	now := int64(0)
	err := p.node.Client.CoreV1().Pods(object.Namespace).Delete(context.Background(), object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &object.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		p.node.Log.Printf("delete pod %s/%s: %v", object.Namespace, object.Name, err)
	}
}

func (p *pod) event(reason, format string, args ...any) {
	p.node.events.Eventf(p.current(), corev1.EventTypeNormal, reason, format, args...)
}

func (p *pod) warn(reason, format string, args ...any) {
	p.node.events.Eventf(p.current(), corev1.EventTypeWarning, reason, format, args...)
}

func (p *pod) writeSystemFiles() error {
	object := p.current()
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
	if !object.Spec.HostNetwork {
		hosts += p.address.String() + "\t" + p.hostname() + "\n"
	}
	for _, alias := range object.Spec.HostAliases {
		hosts += alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n"
	}
	for name, content := range map[string]string{
		"hostname": p.hostname() + "\n", "hosts": hosts, "resolv.conf": p.resolver(),
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// resolver is the pod's resolv.conf. The node has no name server of its own, so
// policy Default resolves nothing.
func (p *pod) resolver() string {
	object := p.current()
	var servers, search, options []string
	policy := object.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirstWithHostNet || policy == corev1.DNSClusterFirst && !object.Spec.HostNetwork {
		domain := p.node.Domain
		servers = []string{p.node.DNS.String()}
		search = []string{object.Namespace + ".svc." + domain, "svc." + domain, domain}
		options = []string{"ndots:5"}
	}
	if config := object.Spec.DNSConfig; config != nil {
		servers = append(servers, config.Nameservers...)
		search = append(search, config.Searches...)
		for _, option := range config.Options {
			text := option.Name
			if option.Value != nil {
				text += ":" + *option.Value
			}
			options = append(options, text)
		}
	}
	var text strings.Builder
	for _, server := range servers {
		fmt.Fprintln(&text, "nameserver", server)
	}
	if len(search) > 0 {
		fmt.Fprintln(&text, "search", strings.Join(search, " "))
	}
	if len(options) > 0 {
		fmt.Fprintln(&text, "options", strings.Join(options, " "))
	}
	return text.String()
}
