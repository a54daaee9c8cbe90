package provision

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/moongate-dev/moongate/internal/translate"
)

// Options configure a Provisioner. All fields are required, except Logger and those of which nil is explained.
type Options struct {
	Config *rest.Config
	// ControllerName is the controllerName of the managed GatewayClasses. Objects made under another one are left alone, so that two
	// installations can share a cluster.
	ControllerName string
	// Image is that of the proxies, unless GatewayParameters name another.
	Image string
	// ControllerAddress is the host:port of the stream that proxies connect to.
	ControllerAddress string
	// LogFormat is the format of the proxies' logs: "json", or "" for text.
	LogFormat string
	// CAPEM returns the certificates that proxies trust; after a change, call Refresh.
	CAPEM func() []byte
	// Report is called with what runs for a Gateway whenever it has changed: nil for nothing. readyPods are names, sorted. Calls do
	// not overlap; the first comes after everything was listed. It is not called for a Gateway with objects that could not be
	// listed.
	Report func(namespace, name string, i *translate.Infrastructure, readyPods []string)
	// Namespaces are those that may contain managed Gateways; nil means all.
	Namespaces []string
	// Unread reports whether the state of a Gateway without a ProxySpec is unknown, because the Gateway, its class, or one of their
	// kinds could not be read, or translation panics on it: what runs for it is kept. Nil means never.
	Unread func(namespace, name string) bool
	// Pods is called with the UIDs of a Gateway's pods, by name, whenever they have changed and before Report is called with them;
	// may be nil.
	Pods func(namespace, name string, uids map[string]string)
	// Zones is called with the zones of a Gateway's pods, by name, whenever they have changed and before Pods is called with the
	// pods; pods whose zone is not known are left out. May be nil.
	Zones func(namespace, name string, zones map[string]string)
	// Problem is called whenever the reason has changed why a Gateway's objects cannot be applied, with "" once they can, before
	// Report is called. Temporary failures are not reported. It must neither block nor call the Provisioner. May be nil.
	Problem func(namespace, name, what string)
	Logger  *slog.Logger // nil discards
}

// namespaces returns those that are watched, without duplicates; "" alone means all.
func (o *Options) namespaces() []string {
	if len(o.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
}

// unreadRetry is the interval of retries for a Gateway that could not be read.
const unreadRetry = 10 * time.Second

// grace is how long objects are kept without a ProxySpec: the replacement of a GatewayClass, or a new leader that does not have the
// ProxySpec yet, must not stop what is served. Kubernetes itself removes the objects of a deleted owner at once.
const grace = 30 * time.Second

// skip is how long Listed waits for a kind or a namespace that cannot be listed although others can.
const skip = 30 * time.Second

// workers is the number of Gateways that are applied concurrently.
const workers = 4

// Provisioner applies ProxySpecs and reports the result. It is safe for concurrent use.
type Provisioner struct {
	o      Options
	client *client
	store  *store
	nodes  *nodes
	grace  time.Duration
	skip   time.Duration // see the constant
	// deadline is progressDeadline, or shorter in tests.
	deadline time.Duration
	// settleTime is the constant, or shorter in tests.
	settleTime time.Duration
	// mergeTimeout is the constant, or shorter in tests.
	mergeTimeout time.Duration

	nodePorts nodePorts

	reports workqueue.TypedInterface[gatewayName]
	// listed is closed once every kind was listed, ready once everything that was listed has been reported.
	listed, ready chan struct{}

	mu       sync.Mutex
	unlisted map[scope]*trouble // those that were never listed
	skipped  map[scope]bool     // those of unlisted that Listed does not wait for
	read     map[string]bool    // kinds that were listed in at least one namespace
	// unknown are the namespaces with a skipped kind, until its objects there were listed and reported.
	unknown map[string]bool
	// work is the queue of Run; nil unless this controller is leader.
	work workqueue.TypedRateLimitingInterface[gatewayName]
	// specified is set once the first ProxySpecs of this leader were set.
	specified bool
	// gateways is what this leader remembers; use state, peek, specs and tidy.
	gateways map[gatewayName]*gatewayState
	errors   uint64               // failed attempts since New
	waiting  map[gatewayName]bool // for their turn to replace proxies
	woken    map[gatewayName]bool // whose turn has come; see passTurn

	// rollouts is locked before mu and the store's lock.
	rollouts sync.Mutex
	starting map[gatewayName]bool // rollouts that the store may not contain yet

	reported map[gatewayName]report // used only by the goroutine that reports
}

type report struct {
	infrastructure *translate.Infrastructure
	ready          []string
	pods           map[string]string // UIDs of those that have not ended, by name
	zones          map[string]string // of pods, by name; nil if none is known
}

// New returns a Provisioner without specs. The error is one in Options.Config.
func New(o Options) (*Provisioner, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(o.Config)
	if err != nil {
		return nil, err
	}
	p := &Provisioner{
		o: o, client: c, grace: grace, mergeTimeout: mergeTimeout, skip: skip, deadline: progressDeadline, settleTime: settleTime, store: newStore(o.ControllerName), listed: make(chan struct{}), ready: make(chan struct{}),
		reports:  workqueue.NewTyped[gatewayName](),
		unlisted: map[scope]*trouble{}, skipped: map[scope]bool{}, read: map[string]bool{}, unknown: map[string]bool{}, reported: map[gatewayName]report{}, starting: map[gatewayName]bool{},
	}
	for kind := range resources {
		for _, namespace := range o.namespaces() {
			log := o.Logger.With("kind", kind)
			if namespace != metav1.NamespaceAll {
				log = log.With("namespace", namespace)
			}
			p.unlisted[scope{kind, namespace}] = &trouble{log: log, failing: "cannot watch what runs for Gateways; trying again", mended: "what runs for Gateways is watched again"}
		}
	}
	p.store.split = len(o.Namespaces) > 0
	p.store.changed, p.store.synced = p.changed, p.synced
	p.nodes = newNodes(p.nodesChanged)
	p.forget()
	return p, nil
}

// Listed returns a channel that is closed once Watch has listed and reported everything that runs, except what cannot be listed for
// long.
func (p *Provisioner) Listed() <-chan struct{} { return p.ready }

// forget drops the state that only a leader needs.
func (p *Provisioner) forget() {
	p.work, p.specified = nil, false
	p.gateways, p.waiting, p.woken = map[gatewayName]*gatewayState{}, map[gatewayName]bool{}, map[gatewayName]bool{}
}

// changed is called by the store.
func (p *Provisioner) changed(g gatewayName, kind string) {
	p.reports.Add(g)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.work != nil && kind != kindPod {
		p.work.Add(g)
		if kind == kindDeployment || kind == kindDaemonSet {
			p.wakeWaiting()
		}
	}
}

func (p *Provisioner) synced(listed scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read[listed.kind] = true
	delete(p.unlisted, listed)
	delete(p.skipped, listed)
	p.settle()
	if p.unknown[listed.namespace] && !p.incomplete(listed.namespace) {
		p.reports.Add(gatewayName{namespace: listed.namespace})
	}
}

// settle closes listed once there is nothing more to wait for. The caller must hold p.mu.
func (p *Provisioner) settle() {
	if len(p.unlisted) > len(p.skipped) {
		return
	}
	select {
	case <-p.listed:
	default:
		close(p.listed)
	}
}

// incomplete reports whether a kind was never listed in a namespace, except optional kinds. The caller must hold p.mu.
func (p *Provisioner) incomplete(namespace string) bool {
	for s := range p.unlisted {
		if s.namespace == namespace && !optional(s.kind) {
			return true
		}
	}
	return false
}

// Unlisted reports whether it is not known what runs for the Gateways of a namespace, because a kind cannot be listed there, or was
// not reported yet: then it is kept, and not included in reports.
func (p *Provisioner) Unlisted(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unknown[namespace]
}

// Waiting returns which kinds Listed waits for, and why; sorted.
func (p *Provisioner) Waiting() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, t := range p.unlisted {
		if p.skipped[s] {
			continue
		}
		list = append(list, strings.TrimSuffix(s.kind+" "+s.namespace, " ")+": "+t.why())
	}
	slices.Sort(list)
	return list
}

// optional reports whether everything else can be done without listing the objects of a kind: existing budgets and autoscalers are
// then unknown, not absent, and so are DaemonSets, which a role of an earlier version does not permit.
func optional(kind string) bool { return minor(kind) || kind == kindDaemonSet }

// minor reports whether a Gateway can be served without the objects of a kind.
func minor(kind string) bool { return kind == kindDisruptionBudget || kind == kindAutoscaler }

// dispensable reports whether Listed need not wait for a scope that cannot be listed. A namespace without a Role must not delay
// others: what runs there is kept. The caller must hold p.mu.
func (p *Provisioner) dispensable(s scope, err error) bool {
	if optional(s.kind) {
		return apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	}
	return apierrors.IsForbidden(err) && s.namespace != metav1.NamespaceAll && p.read[s.kind]
}

// goOnWithout ends the wait for scopes that cannot be listed for long, until all are listed or ctx ends.
func (p *Provisioner) goOnWithout(ctx context.Context) {
	tick := time.NewTicker(max(p.skip/30, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.listed:
			return
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.mu.Lock()
			for s, t := range p.unlisted {
				if err := t.lasts(now, p.skip); err != nil && !p.skipped[s] && p.dispensable(s, err) {
					p.skipped[s] = true
					const remedy = "allow the controller's ServiceAccount to list and watch them"
					if optional(s.kind) {
						t.log.Warn("objects of a kind cannot be listed; continuing without them until they can: "+remedy, "error", err)
						continue
					}
					t.log.Warn("objects of a kind cannot be listed; the objects and the statuses of the namespace's Gateways are kept until they can: "+remedy, "error", err)
					p.unknown[s.namespace] = true
				}
			}
			p.settle()
			p.mu.Unlock()
		}
	}
}

// Update sets ProxySpecs that have changed; the newest of a Gateway wins. It never blocks. A leader calls it after Run was started
// or shortly before, the first time with all that exist, even if there are none: objects of Gateways without a ProxySpec are removed
// after a grace period.
func (p *Provisioner) Update(changes []translate.ProxySpecChange) {
	if p.take(changes) {
		p.again()
	}
}

// again queues every Gateway that has objects or a spec.
func (p *Provisioner) again() {
	running := p.store.names() // before p.mu is locked, because the store calls changed while it is locked
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.work == nil {
		return
	}
	for _, g := range running {
		p.work.Add(g)
	}
	for g := range p.specs() {
		p.work.Add(g)
	}
}

// take sets specs, and reports whether they are the first.
func (p *Provisioner) take(changes []translate.ProxySpecChange) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.specified
	p.specified = true
	for _, change := range changes {
		g := gatewayName{change.Namespace, change.Name}
		if change.Spec == nil {
			p.state(g).dropSpec()
			p.tidy(g)
		} else {
			p.state(g).setSpec(change.Spec)
		}
		p.reports.Add(g) // the class that counts may have changed
		if p.work != nil {
			p.work.Forget(g) // earlier failures do not apply to this spec
			p.work.Add(g)
		}
	}
	return first
}

// Refresh applies every spec again if it differs, for example after a change of Options.CAPEM. It never blocks.
func (p *Provisioner) Refresh() { p.again() }

// Gateway is the Gateway whose proxies run under a ServiceAccount; false for one without a ProxySpec. The ServiceAccount must be
// the one of that UID, made for the Gateway as it is: one that has the name only, or was made for a Gateway that is no more,
// is nobody's. Its class may be the one that the Gateway had before, whose proxies serve until there are others. Of merged Gateways the name is that of their ProxySpec, and
// the ServiceAccount that of a GatewayClass.
//
// If the ServiceAccount was deleted and created again, running proxies have tokens with the former UID until the kubelet renews them, after up to
// 48 minutes. These are accepted as well if this replica saw the former ServiceAccount with the same owner. That grants nothing to those who may create
// ServiceAccounts or pods in the namespace: the API server issues such a token only to a pod that was started under an account with this name, it is served
// only as long as there is a pod of the Gateway with that UID, and those who may create pods can start one under the current account. Tokens of an account that
// was never the controller's, such as one that was there before the Gateway, are refused. To revoke a token, delete its pod.
func (p *Provisioner) Gateway(namespace, serviceAccount, uid string) (name string, ok bool) {
	account := p.store.find(namespace, objectName{kindServiceAccount, serviceAccount})
	if account == nil || string(account.GetUID()) != uid && !p.store.succeeds(account, uid) {
		return "", false
	}
	owner := metav1.GetControllerOf(account)
	p.mu.Lock()
	defer p.mu.Unlock()
	g := gatewayName{namespace, account.GetAnnotations()[annotationGateway]}
	if owner == nil {
		return "", false
	}
	if spec := p.peek(g).spec; spec != nil {
		if owner.UID != spec.UID {
			return "", false
		}
		return spec.Name, true
	}
	for _, spec := range p.specs() { // it was merged with others, and its own proxies have not ended yet
		if m := mergedIn(spec, g); m != nil && owner.UID == m.UID {
			return m.Name, true
		}
	}
	return "", false
}

// Watch watches what runs, and reports it, until ctx ends. Every replica calls it, once.
func (p *Provisioner) Watch(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	silent := klog.NewContext(ctx, klog.Logger{}) // trouble logs it, once
	for kind, r := range resources {
		for _, namespace := range p.o.namespaces() {
			p.mu.Lock()
			trouble := p.unlisted[scope{kind, namespace}]
			p.mu.Unlock()
			reflector := cache.NewReflectorWithOptions(p.client.listWatch(kind, namespace, trouble), r.empty, kindStore{p.store, kind, namespace}, cache.ReflectorOptions{
				Name: "provision " + kind, Logger: &klog.Logger{},
				Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 2 * time.Second},
			})
			wg.Go(func() { reflector.RunWithContext(silent) })
		}
	}
	if p.o.Zones != nil {
		wg.Go(func() { p.followNodes(silent) })
	}
	wg.Go(func() { p.goOnWithout(ctx) })
	select {
	case <-p.listed:
	case <-ctx.Done():
		return nil
	}
	stop := context.AfterFunc(ctx, p.reports.ShutDown)
	defer stop()
	for _, g := range p.store.names() { // they are in the queue too, which does not show which of them is the last
		if ctx.Err() != nil {
			return nil
		}
		p.report(g)
	}
	close(p.ready)
	for {
		g, shutdown := p.reports.Get()
		if shutdown {
			return nil
		}
		if g.name == "" {
			p.reportNamespace(g.namespace)
		} else {
			p.report(g)
		}
		p.reports.Done(g)
	}
}

// trouble logs that a kind cannot be listed or watched: when that begins, and when it ends.
type trouble struct {
	log *slog.Logger
	// failing and mended are the messages, and remedy is appended to the first if the API server forbids it.
	failing, mended, remedy string

	mu    sync.Mutex
	began bool
	// list and watch are the last errors of either, nil if none: if only lists succeed, nothing is watched.
	list, watch error
	since       time.Time // of errors of lists that allow the scope to be skipped
}

// listed records the result of a list.
func (t *trouble) listed(ctx context.Context, err error) {
	if ignored(ctx, err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.list == nil || apierrors.ReasonForError(err) != apierrors.ReasonForError(t.list) {
		t.since = time.Now()
	}
	t.list = err
	t.say(err)
}

// watched records whether a watch was established. A watch continues from a list, or begins with one.
func (t *trouble) watched(ctx context.Context, err error) {
	if ignored(ctx, err) || apierrors.IsInvalid(err) { // an older API server, whose watches cannot begin with a list
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watch = err; err == nil {
		t.list = nil
	}
	t.say(err)
}

// ignored reports whether an error is the end of a replica, or is resolved by listing again.
func ignored(ctx context.Context, err error) bool {
	return ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// say logs a change. The caller must hold t.mu.
func (t *trouble) say(err error) {
	is := t.list != nil || t.watch != nil
	switch {
	case is && !t.began:
		failing := t.failing
		if t.remedy != "" && apierrors.IsForbidden(err) {
			failing += ": " + t.remedy
		}
		t.log.Warn(failing, "error", err)
	case !is && t.began:
		t.log.Info(t.mended)
	}
	t.began = is
}

// lasts returns the error of lists if it has lasted for that long; else nil.
func (t *trouble) lasts(now time.Time, long time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.list == nil || now.Sub(t.since) < long {
		return nil
	}
	return t.list
}

func (t *trouble) why() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, err := range []error{t.list, t.watch} {
		if err != nil {
			return err.Error()
		}
	}
	return "not listed yet"
}

// reportNamespace reports all Gateways of a namespace that was unknown until now.
func (p *Provisioner) reportNamespace(namespace string) {
	for _, g := range p.store.names() {
		if g.namespace == namespace {
			p.report(g)
		}
	}
	p.mu.Lock()
	delete(p.unknown, namespace)
	p.mu.Unlock()
	p.again()
}

// report reports one Gateway if something has changed. In a namespace in which something could not be listed it reports only the
// pods: objects that could not be listed would look as if they were gone.
func (p *Provisioner) report(g gatewayName) {
	p.mu.Lock()
	class, s, incomplete := "", p.peek(g), p.incomplete(g.namespace)
	if s.spec != nil {
		class = s.spec.Class
	}
	p.mu.Unlock()
	var now report
	objects := p.store.of(g)
	if !incomplete {
		now.infrastructure, now.ready = infrastructureOf(objects, class, s.problem)
	}
	now.pods, now.zones = podUIDs(objects), p.nodes.podZones(objects)
	before := p.reported[g]
	if reflect.DeepEqual(before, now) {
		return
	}
	if p.reported[g] = now; now.infrastructure == nil && now.pods == nil && now.zones == nil {
		delete(p.reported, g)
	}
	if p.o.Zones != nil && !maps.Equal(before.zones, now.zones) {
		p.o.Zones(g.namespace, g.name, now.zones)
	}
	if p.o.Pods != nil && !maps.Equal(before.pods, now.pods) {
		p.o.Pods(g.namespace, g.name, now.pods)
	}
	if !incomplete {
		p.o.Report(g.namespace, g.name, now.infrastructure, now.ready)
	}
}

// podUIDs returns the UIDs of the pods that have not ended, by name; nil if there are none. Those of any class count, and those that
// are terminating, which still serve.
func podUIDs(objects map[objectName]Object) map[string]string {
	var uids map[string]string
	for _, object := range objects {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if uids == nil {
			uids = map[string]string{}
		}
		uids[pod.Name] = string(pod.UID)
	}
	return uids
}

// Run applies ProxySpecs until ctx ends, and then forgets them, so Update must not be called after the end of a leadership. Only the
// leader calls it, while Watch runs.
func (p *Provisioner) Run(ctx context.Context) error {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget()
	}()
	select {
	case <-p.listed:
	case <-ctx.Done():
		return nil
	}
	work := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[gatewayName](200*time.Millisecond, time.Minute))
	p.mu.Lock()
	p.work = work
	p.mu.Unlock()
	p.again()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { p.workOn(ctx, work) })
	}
	<-ctx.Done()
	work.ShutDown()
	wg.Wait()
	return nil
}

func (p *Provisioner) workOn(ctx context.Context, work workqueue.TypedRateLimitingInterface[gatewayName]) {
	for {
		g, shutdown := work.Get()
		if shutdown {
			return
		}
		again, err := p.reconcile(ctx, g)
		p.passTurn(g)
		switch {
		case err != nil && ctx.Err() == nil:
			p.noteFailure(g, err)
			work.AddRateLimited(g)
		case err == nil:
			work.Forget(g)
			p.noteFailure(g, nil)
			if again > 0 {
				work.AddAfter(g, again)
			}
		}
		work.Done(g)
	}
}

// noteFailure logs why a Gateway cannot be provisioned, once until the reason changes.
func (p *Provisioner) noteFailure(g gatewayName, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.state(g).failure = ""
		p.tidy(g)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // it ends with its namespace
	default:
		p.errors++
		why := err.Error()
		if unanswered := (net.Error)(nil); errors.As(err, &unanswered) {
			why = "no answer" // the texts differ in ports
		}
		if s := p.state(g); s.failure != why {
			s.failure = why
			p.o.Logger.Warn("cannot provision; trying again", "gateway", g.String(), "error", err)
		}
	}
}

// Failures returns how many attempts to provision a Gateway have failed since New, and for how many Gateways the last attempt
// failed.
func (p *Provisioner) Failures() (errors uint64, failing int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.gateways {
		if s.failure != "" || s.problem.failed != "" {
			failing++
		}
	}
	return p.errors, failing
}
