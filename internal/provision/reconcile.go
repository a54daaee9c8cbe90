package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// history is what the leader remembers about one object.
type history struct {
	// settled contains the fields, as returned by differences, that still differed right after the object was applied, for example
	// because of an admission webhook. To apply it again would change nothing.
	settled map[string]string
	// last and pause limit how often a field is set again that another writer keeps changing.
	last  time.Time
	pause time.Duration
}

const (
	firstPause, longestPause = time.Second, 5 * time.Minute
)

// refusal is an error that a user can resolve; all others may be temporary.
type refusal struct{ error }

// replicasError is an error because of which a Deployment keeps a wrong number of replicas.
type replicasError struct{ error }

func (u replicasError) Unwrap() error { return u.error }

// outcome collects the errors of applying a ProxySpec. With minor errors the Gateway is served nevertheless, without a budget, an
// autoscaler, or the right number of replicas. With unassigned ones an entry of spec.addresses has no address. awaited are not
// failures.
type outcome struct{ failed, minor, unassigned, awaited []error }

// note adds the result for an object of a kind.
func (o *outcome) note(kind string, err error) {
	var replicas replicasError
	switch {
	case err == nil:
	case minor(kind), errors.As(err, &replicas):
		o.minor = append(o.minor, err)
	default:
		o.failed = append(o.failed, err)
	}
}

// problem is the part of an outcome that the user should see; "" for none.
type problem struct{ failed, minor, unassigned string }

// after returns the problem after a new outcome. Temporary errors, such as an API server that is unavailable, keep the earlier text.
func (p problem) after(o outcome) problem {
	return problem{userText(o.failed, p.failed), userText(slices.Concat(o.minor, o.awaited), p.minor), userText(o.unassigned, p.unassigned)}
}

// userText returns the text of errors that the user should see, "" for none, or before if all errors may be temporary.
func userText(errs []error, before string) string {
	var r refusal
	switch err := errors.Join(errs...); {
	case err == nil:
		return ""
	case errors.As(err, &r):
		return r.Error()
	}
	return before
}

// reconcile applies the ProxySpec of one Gateway. again is when to call it again, 0 if only after a change.
func (p *Provisioner) reconcile(ctx context.Context, g gatewayName) (again time.Duration, err error) {
	p.mu.Lock()
	spec, specified, unknown := p.peek(g).spec, p.specified, p.unknown[g.namespace]
	p.mu.Unlock()
	switch {
	case !specified:
		return 0, nil
	case spec == nil:
		return p.abandon(ctx, g)
	}
	running := p.store.of(g)
	settings := Settings{
		ControllerName: p.o.ControllerName, Image: p.o.Image, ControllerAddress: p.o.ControllerAddress, LogFormat: p.o.LogFormat,
		CAPEM: p.o.CAPEM(), Services: servicesOf(running),
	}
	if spec.Paused || unknown { // unknown objects could not be kept, for example the name of the Service with an address
		p.setProblem(g, spec, outcome{})
		return 0, p.renewTrust(ctx, spec, settings, running)
	}
	objects, err := Objects(spec, settings)
	if err != nil {
		came := outcome{failed: []error{refusal{err}}}
		p.reportProblem(g, spec, came)
		p.setProblem(g, spec, came)
		return 0, nil // only another spec helps
	}
	var came outcome
	for _, object := range objects {
		if svc, ok := object.(*corev1.Service); ok && svc.Spec.ClusterIP != "" && running[nameOf(svc)] == nil && heldByFormerClass(spec, running, svc.Spec.ClusterIP) {
			came.awaited = append(came.awaited, refusal{fmt.Errorf("%s %s/%s is created once the Service of another class no longer has address %s", kindService, svc.Namespace, svc.Name, svc.Spec.ClusterIP)})
			continue
		}
		later, err := p.apply(ctx, g, spec, object)
		var r refusal
		if svc, ok := object.(*corev1.Service); ok && requestOf(svc).cluster && errors.As(err, &r) {
			came.unassigned = append(came.unassigned, err) // that entry of spec.addresses has no address, but others may
		} else {
			came.note(nameOf(object).kind, err)
		}
		if later > 0 && (again == 0 || later < again) {
			again = later
		}
	}
	leaving := maps.Clone(running)
	maps.DeleteFunc(leaving, func(n objectName, _ Object) bool {
		return slices.ContainsFunc(objects, func(object Object) bool { return nameOf(object) == n })
	})
	came.note(kindConfigMap, p.renewTrust(ctx, spec, settings, leaving))
	if len(came.failed) == 0 {
		p.prune(ctx, spec, running, objects, &came)
	}
	p.reportProblem(g, spec, came)
	p.setProblem(g, spec, came)
	if len(came.awaited) > 0 && (again == 0 || again > awaitedPoll) {
		again = awaitedPoll
	}
	return again, errors.Join(slices.Concat(came.failed, came.minor, came.unassigned)...)
}

// renewTrust updates the certificates by which proxies verify the controller, for proxies that are kept unchanged because their
// Gateway's ProxySpec is paused or has another class now. It changes nothing else, and creates nothing.
func (p *Provisioner) renewTrust(ctx context.Context, spec *translate.ProxySpec, s Settings, running map[objectName]Object) error {
	var failed []error
	for _, n := range inOrder(running) {
		live, ok := running[n].(*corev1.ConfigMap)
		if !ok || live.DeletionTimestamp != nil || !controlledBy(live, spec) || live.Data[caFile] == string(s.CAPEM) {
			continue
		}
		wanted := configMap(spec, s)
		wanted.Name, wanted.UID = live.Name, live.UID // with a UID the API server does not create an object
		wanted.Labels[gwv1.GatewayClassNameLabelKey] = live.Labels[gwv1.GatewayClassNameLabelKey]
		tree, err := encode(wanted)
		if err != nil {
			return err
		}
		after, err := p.client.apply(ctx, n.kind, live.Namespace, n.name, tree)
		switch {
		case apierrors.IsConflict(err): // it is gone
		case err != nil:
			failed = append(failed, apiError(n, live.Namespace, err))
		default:
			p.store.written(n.kind, after)
		}
	}
	return errors.Join(failed...)
}

func servicesOf(objects map[objectName]Object) []*corev1.Service {
	var all []*corev1.Service
	for _, object := range objects {
		if svc, ok := object.(*corev1.Service); ok {
			all = append(all, svc)
		}
	}
	return all
}

// setProblem records the problem of an outcome, unless the Gateway has another spec now.
func (p *Provisioner) setProblem(g gatewayName, spec *translate.ProxySpec, came outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peek(g).spec != spec {
		return
	}
	s := p.state(g)
	s.problem = s.problem.after(came)
	p.reports.Add(g)
}

// reportProblem calls Options.Problem if the problem has changed. It must be called before setProblem, so that the status does not
// show the problem earlier.
func (p *Provisioner) reportProblem(g gatewayName, spec *translate.ProxySpec, came outcome) {
	p.mu.Lock()
	s := p.peek(g)
	before, current := s.refused, s.spec == spec
	now := userText(slices.Concat(came.failed, came.minor, came.unassigned), before)
	if current {
		p.state(g).refused = now
	}
	p.mu.Unlock()
	if p.o.Problem != nil && current && now != before {
		p.o.Problem(g.namespace, g.name, now)
	}
}

// application is one object that is applied.
type application struct {
	g       gatewayName
	spec    *translate.ProxySpec
	object  Object
	n       objectName
	wanted  map[string]any // object in the form in which it is applied
	live    Object         // what is there; nil for nothing
	history *history
	// leaveReplicas is set if the number of replicas is not, or no longer, owned by this controller.
	leaveReplicas bool
	keptReplicas  error         // why the number of replicas is not applied
	later         time.Duration // when to try again; 0 if only after a change
	endRollout    func()        // of beginRollout; nil if none was begun
}

// apply applies one object unless it is up to date. later is when to try again if another writer keeps changing it.
func (p *Provisioner) apply(ctx context.Context, g gatewayName, spec *translate.ProxySpec, object Object) (later time.Duration, err error) {
	n := nameOf(object)
	wanted, err := encode(object)
	if err != nil {
		return 0, err
	}
	live, err := p.find(ctx, g.namespace, n)
	if err != nil {
		return 0, err
	}
	if wanted, err = p.allowUnplaced(g, object, wanted, live); err != nil {
		return 0, err
	}
	a := &application{
		g: g, spec: spec, object: object, n: n, wanted: wanted, live: live, history: p.history(g, n),
		leaveReplicas: scaledElsewhere(spec),
	}
	defer func() {
		if a.endRollout == nil {
			return
		}
		if a.endRollout(); err != nil { // it may not have begun, so that nothing would wake those that wait for its end
			p.mu.Lock()
			defer p.mu.Unlock()
			p.wakeWaiting()
		}
	}()
	var proceed bool
	if live != nil {
		proceed, err = p.prepareUpdate(ctx, a)
	} else {
		proceed = p.prepareCreate(a)
	}
	if err != nil || !proceed {
		return a.later, err
	}
	return a.later, p.write(ctx, a)
}

// prepareUpdate reports whether an object that exists is to be applied now. It must belong to the Gateway and differ, another writer
// must not have changed it too recently, and a rollout must be allowed to begin. The number of replicas is left to its owner.
func (p *Provisioner) prepareUpdate(ctx context.Context, a *application) (proceed bool, err error) {
	if !controlledBy(a.live, a.spec) {
		return false, refusal{fmt.Errorf("%s %s/%s exists and does not belong to %s; rename the %s, or delete the %s", a.n.kind, a.g.namespace, a.n.name, thisOne(a.spec), ownerOf(a.spec).Kind, a.n.kind)}
	}
	if a.live.GetDeletionTimestamp() != nil {
		return false, fmt.Errorf("%s %s/%s is being deleted", a.n.kind, a.g.namespace, a.n.name)
	}
	differs, err := differsFrom(a.wanted, a.live)
	if err != nil {
		return false, err
	}
	maps.DeleteFunc(differs, func(path, how string) bool { return a.history.settled[path] == how })
	if len(differs) == 0 {
		return false, nil
	}
	if err := p.excludeReplicas(ctx, a, differs); err != nil {
		return false, err
	}
	if len(differs) == 0 {
		return false, a.keptReplicas
	}
	if a.live.GetAnnotations()[annotationApplied] == appliedHash(a.wanted, annotationApplied) {
		if wait := a.history.wait(time.Now()); wait > 0 {
			a.later = wait
			return false, a.keptReplicas
		}
		p.o.Logger.Info("another writer has changed an object of a Gateway; applying it again", "gateway", a.g.String(), "object", a.n.String(), "field", describe(differs))
	}
	if w, ok := workloadOf(a.live); ok && restarts(w, appliedHash(a.wanted, annotationTemplate), differs) && !p.admit(a) {
		return false, a.keptReplicas
	}
	if d, ok := a.live.(*appsv1.Deployment); ok && a.leaveReplicas {
		if err := p.client.leaveReplicas(ctx, d); err != nil {
			return false, apiError(a.n, a.g.namespace, err)
		}
	}
	return true, nil
}

// excludeReplicas removes the number of replicas of a Deployment from what is applied, and from differs, if an autoscaler of another
// writer sets it, or may do so.
func (p *Provisioner) excludeReplicas(ctx context.Context, a *application, differs map[string]string) error {
	d, ok := a.live.(*appsv1.Deployment)
	if !ok || d.Spec.Replicas == nil || scaledElsewhere(a.spec) {
		return nil
	}
	scaled, err := p.scaledByOthers(ctx, a.spec, d)
	switch _, replicas := differs["spec.replicas"]; {
	case apierrors.IsForbidden(err):
		// It is unknown whether there is an autoscaler: everything except the number of replicas is applied.
		scaled = true
		if replicas {
			a.keptReplicas = replicasError{refusal{fmt.Errorf("%s %s/%s: the number of replicas stays, because another autoscaler may set it: %s; look at the role of the controller", a.n.kind, a.g.namespace, a.n.name, message(err))}}
		}
	case err != nil:
		return err
	}
	if scaled {
		delete(a.wanted["spec"].(map[string]any), "replicas")
		delete(differs, "spec.replicas")
		a.later, a.leaveReplicas = scaledPoll, true // this controller is not notified when the autoscaler is deleted
	}
	return nil
}

// prepareCreate reports whether an object that does not exist is to be created now: a workload only if a rollout may begin. With an
// autoscaler it sets the number of replicas to begin with.
func (p *Provisioner) prepareCreate(a *application) (proceed bool) {
	if _, ok := workloadOf(a.object); !ok {
		return true
	}
	ready := mostReady(p.store.of(a.g), a.n)
	// It takes the place of proxies that serve, as a change of their template would.
	if ready > 0 && !p.admit(a) {
		return false
	}
	if _, ok := a.object.(*appsv1.Deployment); ok && scaledElsewhere(a.spec) {
		// An autoscaler begins with what there is: with one replica all requests would come to that one.
		if ready = max(ready, p.readyBeforeMerge(a.g, a.spec)); ready > 0 {
			a.wanted["spec"].(map[string]any)["replicas"] = replicasFor(ready, a.spec)
		}
	}
	return true
}

// admit reports whether the rollout that an application causes may begin now, and sets when it ends, or when to try again.
func (p *Provisioner) admit(a *application) bool {
	end, ok := p.beginRollout(a.g)
	if !ok {
		a.later = rolloutRetry
		return false
	}
	a.endRollout = end
	return true
}

// write applies an object, and remembers which fields the API server stores with another value.
func (p *Provisioner) write(ctx context.Context, a *application) error {
	after, err := p.client.apply(ctx, a.n.kind, a.g.namespace, a.n.name, a.wanted)
	if err != nil {
		if held := p.nodePortHeld(ctx, a.g, a.object, err); held != nil {
			return refusal{held}
		}
		return apiError(a.n, a.g.namespace, err)
	}
	a.history.settled, err = differsFrom(a.wanted, after)
	if len(a.history.settled) > 0 {
		p.o.Logger.Warn("the API server stores a field with another value than was applied", "gateway", a.g.String(), "object", a.n.String(), "field", describe(a.history.settled))
	}
	p.store.written(a.n.kind, after)
	return cmp.Or(err, a.keptReplicas)
}

// thisOne names the owner of a spec's objects for a message.
func thisOne(spec *translate.ProxySpec) string { return "this " + ownerOf(spec).Kind }

// readyBeforeMerge returns the number of ready proxies that those of spec will replace because its Gateways are merged now, or
// are no longer merged. The proxies of merged Gateways are divided equally among these, because it is not known whose
// requests they serve.
func (p *Provisioner) readyBeforeMerge(g gatewayName, spec *translate.ProxySpec) (ready int32) {
	for _, other := range p.store.names() {
		if other != g && other.name == config.MergedName(spec.Class) {
			ready += mostReady(p.store.of(other), objectName{})
		}
	}
	if isMerged(spec) {
		for _, m := range spec.Merged {
			ready += mostReady(p.store.of(gatewayName{m.Namespace, m.Name}), objectName{})
		}
		return ready
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gateways := int32(0)
	for _, other := range p.specs() {
		if other.Class == spec.Class && !isMerged(other) {
			gateways++
		}
	}
	gateways = max(gateways, 1) // this one, if its spec has changed meanwhile
	return (ready + gateways - 1) / gateways
}

// replicasFor returns the number of replicas with which a Deployment starts that replaces ready proxies, if an autoscaler sets
// the number later.
func replicasFor(ready int32, spec *translate.ProxySpec) int32 {
	if a := spec.Parameters.Autoscaling; a != nil {
		ready = min(ready, a.MaxReplicas)
		if a.MinReplicas != nil {
			ready = max(ready, *a.MinReplicas)
		}
	}
	return ready
}

// nodePortLook is the minimum interval between lists of the cluster's Services to find the user of a node port: Gateways that wait
// for one try again and again.
const nodePortLook = 2 * time.Second

// nodePortHeld returns an error that names another Service that uses a node port fixed for this Service, if the API server rejected
// it because of such a port; nil if none is found. The API server does not report which Service uses the port.
func (p *Provisioner) nodePortHeld(ctx context.Context, g gatewayName, object Object, refused error) error {
	svc, ok := object.(*corev1.Service)
	if !ok || !apierrors.IsInvalid(refused) || !strings.Contains(refused.Error(), "nodePort") {
		return nil
	}
	held := p.nodePorts.heldBy(svc, func() (all []corev1.Service) {
		for _, namespace := range p.o.namespaces() {
			services, err := p.client.services(ctx, namespace)
			if err != nil {
				continue // then only the error of the API server is reported
			}
			all = append(all, services...)
		}
		return all
	})
	if held == nil {
		return nil
	}
	if held.holder.Namespace != svc.Namespace {
		p.o.Logger.Info("a node port is in use", "gateway", g.String(), "node-port", held.port.NodePort, "service", held.holder.Namespace+"/"+held.holder.Name)
	}
	return held
}

// scaledPoll is the interval of checks whether an autoscaler of another writer still exists.
const scaledPoll = time.Minute

// scaledByOthers reports whether an autoscaler of another writer sets the number of replicas. To set the number again would be an
// endless conflict, and each time would end proxies that are needed.
func (p *Provisioner) scaledByOthers(ctx context.Context, spec *translate.ProxySpec, d *appsv1.Deployment) (bool, error) {
	list, err := p.client.autoscalers(ctx, d.Namespace)
	if apierrors.IsNotFound(err) {
		return false, nil // the cluster does not have this API
	}
	if err != nil {
		return false, fmt.Errorf("HorizontalPodAutoscalers of namespace %s: %w", d.Namespace, err)
	}
	return slices.ContainsFunc(list, func(a autoscalingv2.HorizontalPodAutoscaler) bool {
		ref := a.Spec.ScaleTargetRef
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		return group == appsv1.GroupName && ref.Kind == kindDeployment && ref.Name == d.Name && !controlledBy(&a, spec)
	}), nil
}

// find returns the present object, nil if there is none. Objects of other writers are not watched, so it asks the API server; they
// must not be taken over.
func (p *Provisioner) find(ctx context.Context, namespace string, n objectName) (Object, error) {
	if live := p.store.find(namespace, n); live != nil {
		return live, nil
	}
	live, err := p.client.get(ctx, n.kind, namespace, n.name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, apiError(n, namespace, err)
	}
	return live, nil
}

// nameOf returns the name of an object returned by Objects.
func nameOf(object Object) objectName {
	return objectName{object.GetObjectKind().GroupVersionKind().Kind, object.GetName()}
}

func differsFrom(wanted map[string]any, live Object) (map[string]string, error) {
	tree, err := treeOf(live)
	if err != nil {
		return nil, err
	}
	// A decoded object does not contain its kind, but was read as the kind of wanted.
	tree["apiVersion"], tree["kind"] = wanted["apiVersion"], wanted["kind"]
	return differences(wanted, tree), nil
}

func appliedHash(tree map[string]any, annotation string) string {
	return tree["metadata"].(map[string]any)["annotations"].(map[string]any)[annotation].(string) // encode sets it
}

// history returns the history of an object. Only the worker that handles its Gateway uses it.
func (p *Provisioner) history(g gatewayName, n objectName) *history {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state(g)
	if s.history == nil {
		s.history = map[objectName]*history{}
	}
	if s.history[n] == nil {
		s.history[n] = &history{}
	}
	return s.history[n]
}

// wait returns how long to wait before a field is set again that another writer has changed. The time grows with each call, until
// there was no change for a while.
func (h *history) wait(now time.Time) time.Duration {
	if rest := h.last.Add(h.pause).Sub(now); rest > 0 {
		return rest
	}
	if now.Sub(h.last) > 2*longestPause {
		h.pause = 0
	}
	h.last, h.pause = now, min(max(2*h.pause, firstPause), longestPause)
	return 0
}

// controlledBy reports whether an object belongs to the Gateway: to the present one, or to an earlier one with the same name, if the
// object is known to have been made for it.
func controlledBy(object Object, spec *translate.ProxySpec) bool {
	if owner := metav1.GetControllerOf(object); owner != nil && (owner.UID == spec.UID || owner.Kind != ownerOf(spec).Kind) {
		return owner.UID == spec.UID
	}
	return object.GetLabels()[labelManagedBy] == managedBy && object.GetLabels()[labelName] == proxyName &&
		object.GetAnnotations()[annotationGateway] == spec.Name
}

// apiError turns an error of the API server into a refusal if trying again would not help.
func apiError(n objectName, namespace string, err error) error {
	object := n.kind + " " + namespace + "/" + n.name
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case apierrors.IsForbidden(err):
		return refusal{fmt.Errorf("%s is forbidden: %s; look at quotas, admission policies and the role of the controller", object, message(err))}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refusal{fmt.Errorf("%s is refused: %s; correct the Gateway or its GatewayParameters, or delete the %s if it must be created again", object, message(err), n.kind)}
	}
	return fmt.Errorf("%s: %w", object, err)
}

// message returns the message of the API server, without parts that differ each time.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// prune removes what runs and is no longer in the spec. Without ports there is no Service in a
// spec, but an address that is lost may not come back, so those there are stay.
// What ran for another class stays until the present class has replaced it; a Deployment that still serves keeps its
// PodDisruptionBudget and autoscaler. A Service without an owner stays: it may be a copy that a user made.
func (p *Provisioner) prune(ctx context.Context, spec *translate.ProxySpec, running map[objectName]Object, wanted []Object, came *outcome) {
	g := gatewayName{spec.Namespace, spec.Name}
	keep := map[objectName]bool{}
	// serving is true if proxies of another class must stay, replaced if others have replaced them.
	serving, replaced := false, false
	// scaled contains the classes of the Deployments that stay, and whether these keep their budgets and autoscalers.
	scaled := map[string]bool{}
	// leaving contains the workloads of other classes that are removed to free their nodes, even if others or their Services
	// stay.
	leaving := map[objectName]bool{}
	names := inOrder(running)
	r := workloadsOf(spec, running, wanted)
	if r.by.available > 0 || len(r.former) == 0 {
		p.endRoom(g)
	}
	for _, n := range names {
		it, ok := r.former[n]
		if !ok {
			continue
		}
		waits, over := p.awaits(ctx, spec, &r, it, running, wanted, came)
		leaving[n] = !it.ofClass && it.shares && (over || it.unready && r.serving > 0)
		replaced = replaced || over && !it.ofClass && !r.unproven(it, spec)
		if !waits {
			continue
		}
		keep[n] = true
		serving = serving || !it.ofClass
		// A Deployment that shares nodes is scaled down, which an autoscaler would undo.
		if n.kind == kindDeployment {
			scaled[classOf(it.object)] = !it.shares
		}
	}
	if len(keep) == 0 {
		p.endReplacement(g)
	}
	for _, object := range wanted {
		n := nameOf(object)
		keep[n] = true
		if live, ok := running[n]; ok {
			if w, ok := workloadOf(live); ok && w.serves() {
				replaced = true
			}
		}
	}
	for _, n := range names {
		object := running[n]
		ofClass := classOf(object) == labelValue(spec.Class)
		bounded, stays := scaled[classOf(object)]
		switch {
		case keep[n], n.kind == kindPod, bounded && minor(n.kind), ofClass && n.kind == kindService && len(spec.Ports) == 0,
			n.kind == kindService && metav1.GetControllerOf(object) == nil,
			!ofClass && (serving || !replaced) && !(stays && minor(n.kind)) && !leaving[n]:
		case p.superseded(g, spec):
			return
		default:
			came.note(n.kind, p.remove(ctx, object, n))
		}
	}
}

// inOrder returns the names of objects in a fixed order: only the first of several errors is reported.
func inOrder(objects map[objectName]Object) []objectName {
	return slices.SortedFunc(maps.Keys(objects), func(a, b objectName) int { return strings.Compare(a.kind+a.name, b.kind+b.name) })
}

// awaitedPoll is the interval of checks of a workload that waits for another one: the end of a pod triggers none.
const awaitedPoll = 10 * time.Second

// awaits reports whether a former workload still waits until it is replaced, or whether the wait is over. A workload without
// a ready proxy does not wait: nothing is lost, and it must not block the others. With hostNetwork the proxies of a
// Deployment make room one by one. A workload of another class also waits for the addresses of the new Services, and one
// that shares no nodes waits until those that share nodes are gone.
func (p *Provisioner) awaits(ctx context.Context, spec *translate.ProxySpec, r *workloads, it formerWorkload, running map[objectName]Object, wanted []Object, came *outcome) (waits, over bool) {
	if it.unready {
		return false, false
	}
	g, by, until := gatewayName{spec.Namespace, spec.Name}, r.by, "are ready"
	settled := p.settled(g, by, r.replaces)
	if !it.ofClass {
		settled = p.addressesSettled(g, by, addressed(spec, running, wanted)) && settled
		until = "are ready and the Services of its class have addresses"
	}
	if (settled || p.overdue(g, by, it.workload)) && !r.madeRoom && it.shares == r.shares {
		rest, err := p.makeRoom(ctx, spec, r, it)
		if !rest && err == nil {
			return false, true
		}
		if err != nil {
			came.minor = append(came.minor, err) // the Gateway is served
		}
	}
	came.awaited = append(came.awaited, refusal{fmt.Errorf("%s %s/%s serves until all proxies of %s %s %s; if this stays, look at its pods and events",
		it.name.kind, spec.Namespace, it.name.name, by.name.kind, by.name.name, until)})
	return true, false
}

// makeRoom ends one proxy of a Deployment with hostNetwork that another workload with hostNetwork replaces: if all ended at
// once, no node would have a proxy. rest reports whether proxies remain, which stay for now. It is false for other
// workloads and for a Deployment that another writer scales: these are removed as a whole. While no proxy of a new class is
// available, room is made only once and on one node, because every proxy might end for nothing.
func (p *Provisioner) makeRoom(ctx context.Context, spec *translate.ProxySpec, r *workloads, it formerWorkload) (rest bool, err error) {
	if !it.shares {
		return false, nil
	}
	g, unproven := gatewayName{spec.Namespace, spec.Name}, r.unproven(it, spec)
	if unproven && p.roomMade(g, r.by.name, it.name) {
		return true, nil
	}
	d, ok := it.object.(*appsv1.Deployment)
	whole := !ok || it.nodes <= 1
	if !whole {
		if it.wanted < it.nodes || p.superseded(g, spec) {
			p.nextRoom(g, it)
			return true, nil // a proxy is terminating, or the spec has changed
		}
		scaled, err := p.scaledByOthers(ctx, spec, d)
		whole = scaled && err == nil
	}
	if whole {
		if unproven {
			if it.nodes > 1 || !slices.ContainsFunc(r.pods, func(pod *corev1.Pod) bool { return unschedulable(pod) != nil }) {
				return true, nil
			}
			p.setRoom(g, room{by: r.by.name, whole: it.name})
		}
		if r.serving > 1 {
			r.madeRoom = true
			p.nextRoom(g, it)
		}
		return false, nil
	}
	r.madeRoom = true
	p.nextRoom(g, it)
	p.o.Logger.Info("ending a proxy to make room for another one on its node", "namespace", d.Namespace, "object", it.name.String(), "left", it.nodes-1)
	after, err := p.client.scale(ctx, d, it.nodes-1)
	switch {
	case apierrors.IsConflict(err): // it has changed
		return true, nil
	case err != nil:
		return true, apiError(it.name, d.Namespace, err)
	}
	p.store.written(kindDeployment, after)
	if unproven {
		p.setRoom(g, room{by: r.by.name})
	}
	return true, nil
}

// nextRoom restarts the replacement, so that the next proxy of another class stays until the node that was freed last has a new
// proxy.
func (p *Provisioner) nextRoom(g gatewayName, it formerWorkload) {
	if !it.ofClass {
		p.endReplacement(g)
	}
}

// superseded reports whether a Gateway has another ProxySpec now than spec. To remove objects takes a while, and the new spec may
// need them; the Gateway is queued again.
func (p *Provisioner) superseded(g gatewayName, spec *translate.ProxySpec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peek(g).spec != spec
}

func (p *Provisioner) remove(ctx context.Context, object Object, n objectName) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	p.o.Logger.Info("removing an object that a Gateway no longer needs", "namespace", object.GetNamespace(), "object", n.String())
	err := p.client.delete(ctx, n.kind, object)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone, or is another object with the same name
		return nil
	}
	if err != nil {
		return apiError(n, object.GetNamespace(), err)
	}
	p.store.remove(n.kind, object.GetNamespace(), n.name, object.GetResourceVersion()) // an object that is being deleted must not count as serving, although its deletion is not reported yet
	return nil
}

// mergeTimeout is the maximum time for which the proxies of a Gateway that becomes merged, or of Gateways that are no longer merged
// or are merged elsewhere, wait for all proxies that replace them, and those of a former class for addresses of the new Services;
// mergePoll is the interval of checks for the former.
const mergeTimeout, mergePoll = 5 * time.Minute, time.Second

// awaitsMerge reports whether the proxies of g, which becomes merged or is no longer merged, wait for those of another ProxySpec that
// are to take their place: not all of these are available and can be reached yet. held says that there is no end to that yet: none of
// them may be begun, because the parameters of the class cannot be told, or none is ready while those of g are.
func (p *Provisioner) awaitsMerge(g gatewayName) (awaits, held bool) {
	class, merged := config.MergedClass(g.name)
	p.mu.Lock()
	var by []*translate.ProxySpec
	for _, spec := range p.specs() {
		if merged && spec.Class == class || !merged && mergedIn(spec, g) != nil {
			by = append(by, spec)
		}
	}
	p.mu.Unlock()
	paused, ready, former := true, false, p.store.of(g)
	for _, spec := range by {
		running := p.store.of(gatewayName{spec.Namespace, spec.Name})
		i, _ := observe(running, spec.Class, problem{}).infrastructure()
		awaits = awaits || i == nil || !i.Ready || i.Waiting != "" || !takenOver(spec, running, former)
		paused, ready = paused && spec.Paused, ready || i != nil && i.Ready
	}
	if !awaits || paused || ready {
		return awaits, awaits && paused
	}
	own, _ := observe(former, "", problem{}).infrastructure()
	return true, own != nil && own.Ready
}

// mergedIn returns a Gateway among the merged ones of a spec; nil if it is not among them.
func mergedIn(spec *translate.ProxySpec, g gatewayName) *translate.MergedGateway {
	i := slices.IndexFunc(spec.Merged, func(m translate.MergedGateway) bool { return m.Namespace == g.namespace && m.Name == g.name })
	if i < 0 {
		return nil
	}
	return &spec.Merged[i]
}

// abandon removes everything of a Gateway that was read and is not managed by this controller, once the grace is over. What cannot be read may
// be managed, and an address that is given up may not come back. Objects without an owner stay: they may be copies in another namespace, or were
// kept on purpose when their Gateway was deleted.
func (p *Provisioner) abandon(ctx context.Context, g gatewayName) (again time.Duration, err error) {
	running := p.store.of(g)
	maps.DeleteFunc(running, func(n objectName, object Object) bool {
		return n.kind == kindPod || metav1.GetControllerOf(object) == nil
	})
	unread := len(running) > 0 && p.o.Unread != nil && p.o.Unread(g.namespace, g.name)
	p.mu.Lock()
	s := p.state(g)
	if s.spec == nil {
		s.dropSpec() // again, because the spec may have been dropped while it was applied
	}
	if len(running) == 0 || unread {
		log := unread && !s.unreadLogged
		s.absent, s.mergeAwaited, s.unreadLogged = time.Time{}, time.Time{}, unread
		p.tidy(g)
		p.mu.Unlock()
		if unread {
			again = unreadRetry
		}
		if log {
			p.o.Logger.Warn("the objects of a Gateway are kept, because the Gateway or its GatewayClass cannot be read, or translation fails on it; correct it, or delete it", "gateway", g.String())
		}
		return again, nil
	}
	s.unreadLogged = false
	if s.absent.IsZero() {
		s.absent = time.Now()
	}
	since := s.absent
	p.mu.Unlock()
	if awaits, held := p.awaitsMerge(g); awaits && (held || time.Since(since) < p.mergeTimeout) {
		p.mu.Lock()
		s := p.state(g)
		s.mergeAwaited = time.Now()
		if held { // the time begins once a replacement was started
			s.absent = s.mergeAwaited
		}
		p.mu.Unlock()
		return mergePoll, nil
	}
	p.mu.Lock()
	if last := p.peek(g).mergeAwaited; last.After(since) {
		since = last
	}
	rest := time.Until(since.Add(p.grace))
	p.mu.Unlock()
	if rest > 0 {
		return rest, nil
	}
	var failed []error
	for _, n := range inOrder(running) {
		if p.superseded(g, nil) {
			break
		}
		failed = append(failed, p.remove(ctx, running[n], n))
	}
	return 0, errors.Join(failed...)
}
