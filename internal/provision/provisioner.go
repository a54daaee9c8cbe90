package provision

import (
	"context"
	"log/slog"
	"maps"
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

// Options are what a Provisioner works with. All fields but Logger are required.
type Options struct {
	Config *rest.Config
	// ControllerName is the controllerName of our GatewayClasses. Objects made under another one are
	// left alone, so that two installations can share a cluster.
	ControllerName string
	// Image of the proxies, unless GatewayParameters name another.
	Image string
	// ControllerAddress is the host:port of the stream that proxies connect to.
	ControllerAddress string
	// LogFormat is how proxies write their logs: "json", or "" for text.
	LogFormat string
	// CAPEM is what proxies trust; after a change call Refresh.
	CAPEM func() []byte
	// Report takes what runs for a Gateway whenever it changed: nil for nothing. readyPods are names,
	// sorted. Calls do not overlap; the first comes after everything was listed. It is not called for a Gateway of which not everything could be.
	Report func(namespace, name string, i *translate.Infrastructure, readyPods []string)
	// Namespaces are those of the Gateways that there may be; nil is all.
	Namespaces []string
	// Unread reports whether it is unknown what a Gateway without a ProxySpec is, because it, its class, or one of
	// their kinds could not be read, or translation panics on it: what runs for it stays. Nil is never.
	Unread func(namespace, name string) bool
	// Pods takes the UIDs of the pods that there are for a Gateway, by name, whenever they changed and before Report
	// takes them; nil is not called.
	Pods func(namespace, name string, uids map[string]string)
	// Zones takes the zones of the nodes that the pods of a Gateway run on, by the pods' names, whenever they changed and before Pods takes the pods;
	// those whose zone is not known are left out. Nil is not called.
	Zones func(namespace, name string, zones map[string]string)
	// Problem takes why what runs for a Gateway cannot be made what it should be whenever that changed, "" once it can, before Report takes it; what may pass
	// by itself is none. It must neither block nor call the Provisioner. Nil is not called.
	Problem func(namespace, name, what string)
	Logger  *slog.Logger // nil discards
}

// namespaces are those that are watched, each once; "" alone is all.
func (o *Options) namespaces() []string {
	if len(o.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
}

// unreadRetry is how long until a Gateway that could not be read is looked at again.
const unreadRetry = 10 * time.Second

// grace is how long what runs outlives its ProxySpec: a GatewayClass that is replaced, or a ProxySpec that
// a new leader has not been given, must not end what serves. What an owner that was
// deleted leaves, Kubernetes removes at once.
const grace = 30 * time.Second

// skip is how long a kind or a namespace that cannot be listed, though others can, holds up Listed.
const skip = 30 * time.Second

// workers bounds how many Gateways are applied at once.
const workers = 4

// Provisioner applies ProxySpecs and reports what becomes of them. It is safe for concurrent use.
type Provisioner struct {
	o      Options
	client *client
	store  *store
	nodes  *nodes
	grace  time.Duration
	skip   time.Duration // see the constant
	// deadline is progressDeadline.
	deadline time.Duration
	// settleTime is the constant.
	settleTime time.Duration
	// mergeHandOver is the constant.
	mergeHandOver time.Duration

	nodePorts nodePorts

	reports workqueue.TypedInterface[gatewayName]
	// listed is closed once every kind was listed, ready once what was listed has been reported.
	listed, ready chan struct{}

	mu       sync.Mutex
	unlisted map[scope]*trouble // those that were never listed
	skipped  map[scope]bool     // those of them that Listed does not wait for
	read     map[string]bool    // kinds that were listed somewhere
	// unknown are the namespaces with a kind that is gone on without, until what runs there was listed and reported.
	unknown map[string]bool
	// work is the queue of Run; nil while nobody leads.
	work workqueue.TypedRateLimitingInterface[gatewayName]
	// specified says that a leader's first ProxySpecs came.
	specified bool
	specs     map[gatewayName]*translate.ProxySpec
	problems  map[gatewayName]problem
	refused   map[gatewayName]string    // what Options.Problem was called with last
	failures  map[gatewayName]string    // why the last try failed, as it was logged
	errors    uint64                    // tries that failed, since New
	absent    map[gatewayName]time.Time // since when there is no spec for what runs
	handed    map[gatewayName]time.Time // when what takes its place was last seen not to be ready
	unread    map[gatewayName]bool      // Gateways of which it was logged that they cannot be read
	objects   map[gatewayName]map[objectName]*history

	handOvers map[gatewayName]handOver // to a workload of another kind

	waiting map[gatewayName]bool // for their turn to replace proxies; guarded by mu

	// rollouts is taken before mu and the store's lock.
	rollouts sync.Mutex
	starting map[gatewayName]bool // rollouts that the store may not have yet

	reported map[gatewayName]report // of the one goroutine that reports
}

type report struct {
	infrastructure *translate.Infrastructure
	ready          []string
	pods           map[string]string // UIDs of those that have not ended, by name
	zones          map[string]string // of pods, by name; nil where none is known
}

// New makes a Provisioner that knows no spec. The error is one of Options.Config.
func New(o Options) (*Provisioner, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(o.Config)
	if err != nil {
		return nil, err
	}
	p := &Provisioner{
		o: o, client: c, grace: grace, mergeHandOver: mergeHandOver, skip: skip, deadline: progressDeadline, settleTime: settleTime, store: newStore(o.ControllerName), listed: make(chan struct{}), ready: make(chan struct{}),
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

// Listed is closed once Watch has seen and reported everything that runs, but for what cannot be listed for long and is not waited for.
func (p *Provisioner) Listed() <-chan struct{} { return p.ready }

// forget drops what only a leader knows.
func (p *Provisioner) forget() {
	p.work, p.specified = nil, false
	p.specs, p.problems = map[gatewayName]*translate.ProxySpec{}, map[gatewayName]problem{}
	p.failures, p.refused = map[gatewayName]string{}, map[gatewayName]string{}
	p.unread, p.waiting = map[gatewayName]bool{}, map[gatewayName]bool{}
	p.handOvers = map[gatewayName]handOver{}
	p.handed = map[gatewayName]time.Time{}
	p.absent, p.objects = map[gatewayName]time.Time{}, map[gatewayName]map[objectName]*history{}
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

// settle closes listed once there is nothing more to wait for. p.mu is held.
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

// incomplete reports whether a kind was never listed in a namespace, but for those that may be missing. p.mu is held.
func (p *Provisioner) incomplete(namespace string) bool {
	for s := range p.unlisted {
		if s.namespace == namespace && !optional(s.kind) {
			return true
		}
	}
	return false
}

// Unlisted reports whether what runs for the Gateways of a namespace is not known, because a kind cannot be listed there, or was not
// reported yet: then it stays as it is, and nothing that is reported speaks of it.
func (p *Provisioner) Unlisted(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unknown[namespace]
}

// Waiting says which kinds Listed waits for, and why; sorted.
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

// optional says that everything else can be done without knowing the objects of a kind: budgets and autoscalers that are there are then
// unknown, not absent, and so are DaemonSets, which a role of an earlier version does not permit.
func optional(kind string) bool { return minor(kind) || kind == kindDaemonSet }

// minor says that a Gateway is served without what it is to have of a kind.
func minor(kind string) bool { return kind == kindDisruptionBudget || kind == kindAutoscaler }

// dispensable reports whether there is no need to wait for a scope that cannot be listed. A namespace whose Role is gone must not hold up
// others: what runs there stays as it is. p.mu is held.
func (p *Provisioner) dispensable(s scope, err error) bool {
	if optional(s.kind) {
		return apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	}
	return apierrors.IsForbidden(err) && s.namespace != metav1.NamespaceAll && p.read[s.kind]
}

// goOnWithout ends the wait for what cannot be listed for long, until all is known or ctx ends.
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
						t.log.Warn("Objects of a kind cannot be listed; going on without them until they can: "+remedy, "error", err)
						continue
					}
					t.log.Warn("Objects of a kind cannot be listed; what runs for the Gateways of the namespace, and their status, stay as they are until they can: "+remedy, "error", err)
					p.unknown[s.namespace] = true
				}
			}
			p.settle()
			p.mu.Unlock()
		}
	}
}

// Update takes ProxySpecs that changed; the newest of a Gateway wins. It never blocks. A leader calls it
// after Run was started or shortly before, first with all there are, be it none: objects of
// Gateways without a ProxySpec are removed, after a grace.
func (p *Provisioner) Update(changes []translate.ProxySpecChange) {
	if p.take(changes) {
		p.again()
	}
}

// again looks at every Gateway that has anything.
func (p *Provisioner) again() {
	running := p.store.names() // before p.mu is taken: the store reports changes while it is locked
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.work == nil {
		return
	}
	for _, g := range running {
		p.work.Add(g)
	}
	for g := range p.specs {
		p.work.Add(g)
	}
}

// take answers whether these are the first specs.
func (p *Provisioner) take(changes []translate.ProxySpecChange) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.specified
	p.specified = true
	for _, change := range changes {
		g := gatewayName{change.Namespace, change.Name}
		if change.Spec == nil {
			delete(p.specs, g)
			delete(p.problems, g)
			delete(p.refused, g)
			delete(p.objects, g)
			delete(p.handOvers, g)
		} else {
			p.specs[g] = change.Spec
			delete(p.absent, g)
			delete(p.handed, g)
		}
		p.reports.Add(g) // which class counts may have changed
		if p.work != nil {
			p.work.Forget(g) // what failed before says nothing of this spec
			p.work.Add(g)
		}
	}
	return first
}

// Refresh applies every spec anew as far as it differs, as after a change of Options.CAPEM. It never blocks.
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
	if spec := p.specs[g]; spec != nil {
		if owner.UID != spec.UID {
			return "", false
		}
		return spec.Name, true
	}
	for _, spec := range p.specs { // it has been merged with others, and its own proxies have not ended yet
		if m := mergedIn(spec, g); m != nil && owner.UID == m.UID {
			return m.Name, true
		}
	}
	return "", false
}

// Watch follows what runs, and reports it, until ctx ends. Every replica does it, once.
func (p *Provisioner) Watch(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	silent := klog.NewContext(ctx, klog.Logger{}) // trouble says it, and once
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
	for _, g := range p.store.names() { // they are in the queue too, where nobody knows which is the last of them
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

// trouble logs that a kind cannot be listed or watched: when it begins, and when it is over.
type trouble struct {
	log *slog.Logger
	// failing and mended are what it says, and remedy what it adds to the first where the API server forbids it.
	failing, mended, remedy string

	mu    sync.Mutex
	began bool
	// list and watch are the newest errors of either, nil without one: where only lists succeed nothing is followed.
	list, watch error
	since       time.Time // of errors of lists that are dispensed with alike
}

// listed takes how a list ended.
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

// watched takes whether a watch was established. One that was goes on from a list, or begins with one.
func (t *trouble) watched(ctx context.Context, err error) {
	if ignored(ctx, err) || apierrors.IsInvalid(err) { // an older API server, which cannot begin with a list
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watch = err; err == nil {
		t.list = nil
	}
	t.say(err)
}

// ignored are ends of a replica, and what listing anew finds out.
func ignored(ctx context.Context, err error) bool {
	return ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// say logs what is new. t.mu is held.
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

// lasts returns the error of lists that has lasted for so long; nil for none.
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

// reportNamespace reports all Gateways of a namespace that was not known until now.
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

// report reports one Gateway, if there is news. Of a namespace in which something could not be listed it reports the pods alone: what is
// missing would look like what has gone.
func (p *Provisioner) report(g gatewayName) {
	p.mu.Lock()
	class, problem, incomplete := "", p.problems[g], p.incomplete(g.namespace)
	if spec := p.specs[g]; spec != nil {
		class = spec.Class
	}
	p.mu.Unlock()
	var now report
	objects := p.store.of(g)
	if !incomplete {
		now.infrastructure, now.ready = infrastructureOf(objects, class, problem)
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

// podUIDs are the UIDs of the pods that have not ended, by name; nil where there is none. Those of any class count, and those
// that are about to end, which serve meanwhile.
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

// Run applies ProxySpecs until ctx ends, and forgets them then, so no Update of one leadership may come after its
// end. The leader does it, while Watch runs.
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

// noteFailure logs why a Gateway cannot be provisioned: once for each reason that follows another.
func (p *Provisioner) noteFailure(g gatewayName, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		delete(p.failures, g)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // it ends with its namespace
	default:
		p.errors++
		if p.failures[g] != err.Error() {
			p.failures[g] = err.Error()
			p.o.Logger.Warn("cannot provision; trying again", "gateway", g.String(), "error", err)
		}
	}
}

// Failures returns how many tries to provision a Gateway have failed since New, and how many Gateways are not as they should be because of that.
func (p *Provisioner) Failures() (errors uint64, failing int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failing = len(p.failures)
	for g, problem := range p.problems {
		if _, counted := p.failures[g]; !counted && problem.failed != "" {
			failing++
		}
	}
	return p.errors, failing
}
