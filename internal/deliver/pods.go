package deliver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// gateway is what is known of one Gateway's proxies; guarded by Remote.mu.
type gateway struct {
	name           string               // "<namespace>/<name>"
	spec           *translate.ProxySpec // nil: none
	infrastructure *translate.Infrastructure
	pods           map[string]*pod
	holding        map[translate.ObjectKey]struct{}   // of Remote.held
	faults         map[string]translate.ListenerFault // that the translator was told, by config.Listener.key
	routeFaults    map[string]string                  // that the translator was told, by config.Route.key
	trouble        string                             // that was told by RemoteOptions.Trouble
	uids           map[string]string                  // of the pods that there are, by name
	// awaits says that a listener wants an object that is not known yet. What was translated without it is neither
	// sent nor published: its proxies keep the certificate that they have.
	awaits bool
	spared bool // it awaits, among others, a Secret that could not be read
	// undecided says that nobody knows whether a listener may use a Secret, because its namespace cannot be read. Proxies that have a
	// configuration keep it; others are sent what was translated without.
	undecided bool
	sent      bool // something was sent to a proxy of it in this epoch
}

// pod is one proxy: one that is connected, or that the cluster calls ready.
type pod struct {
	ready    bool
	stream   *stream // nil: not connected
	answered bool    // in this epoch
	acked    uint64  // generation; 0 before it answered
	// behind is since when it owes an answer, zero where it does not.
	behind    time.Time
	overdue   bool // it owed for too long: nobody waits for it
	version   string
	refusal   string            // of the last generation that it answered
	heard     bool              // what follows is of this epoch
	listeners map[string]string // faults by config.Listener.key
	rejected  map[config.ID]string
}

// retains says that the proxy has, or may have, a configuration of an earlier epoch and nothing of this one.
func (p *pod) retains() bool {
	if p.stream == nil {
		return p.ready && !p.answered
	}
	return p.stream.retains()
}

// retains says that proxies keep an earlier configuration because the Gateway is undecided.
func (g *gateway) retains() bool {
	if g.undecided {
		for _, p := range g.pods {
			if p.counts() && p.retains() {
				return true
			}
		}
	}
	return false
}

// counts says that what is said to be served must be served by this proxy.
func (p *pod) counts() bool { return !p.overdue && (p.ready || p.answered && p.stream != nil) }

// serves says that everyone who counts has acknowledged the generation.
func (g *gateway) serves(generation uint64) bool {
	if g.awaits || g.retains() {
		return false
	}
	for _, p := range g.pods {
		if p.counts() && (!p.answered || p.acked < generation) {
			return false
		}
	}
	return true
}

// open says that clients can reach what a status calls programmed: the cluster has followed the ProxySpec
// that the status belongs to. Until then the status speaks of what ran before.
func (r *Remote) open(g *gateway, c *translate.StatusChange) bool {
	if r.unlisted(c) {
		return false
	}
	s, ok := c.Status.(*gwv1.GatewayStatus)
	p, i := g.spec, g.infrastructure
	if !ok || p == nil || p.Hold || i == nil || !meta.IsStatusConditionTrue(s.Conditions, string(gwv1.GatewayConditionProgrammed)) {
		return true
	}
	if i.Class != "" && i.Class != p.Class {
		return false
	}
	missing := func(port translate.ProxyPort) bool { return !slices.Contains(i.Ports, port) }
	return i.Ports == nil || !slices.ContainsFunc(p.Ports, missing)
}

// gateway finds or makes what is known of a Gateway; tidy drops it again.
func (r *Remote) gateway(name string) *gateway {
	g := r.gateways[name]
	if g == nil {
		g = &gateway{name: name, pods: map[string]*pod{}, holding: map[translate.ObjectKey]struct{}{}}
		r.gateways[name] = g
	}
	return g
}

// tidy forgets a Gateway of which there is nothing any more.
func (r *Remote) tidy(name string) {
	g := r.gateways[name]
	if g != nil && !r.ours(g) && g.infrastructure == nil && len(g.pods) == 0 && len(g.holding) == 0 && len(g.faults)+len(g.routeFaults) == 0 && len(g.uids) == 0 && !g.awaits && !g.undecided {
		delete(r.gateways, name)
	}
	if r.gateways[name] == nil {
		r.parts.Forget(name)
	}
}

// ours says that there is something to be served for the Gateway.
func (r *Remote) ours(g *gateway) bool { return g.spec != nil || r.parts.Has(g.name) }

func (r *Remote) setReady(g *gateway, names []string, now time.Time) {
	for name, p := range g.pods {
		p.ready = slices.Contains(names, name)
		r.dropUnseen(g, name)
	}
	for _, name := range names {
		if g.pods[name] == nil {
			g.pods[name] = &pod{ready: true}
		}
	}
	r.owe(g, now)
}

// dropUnseen forgets a pod that is neither ready nor connected.
func (r *Remote) dropUnseen(g *gateway, name string) {
	if p := g.pods[name]; p != nil && !p.ready && p.stream == nil {
		delete(g.pods, name)
		r.stale[g.name] = struct{}{}
	}
}

// wake makes the proxies of these Gateways be sent what is new, and ends the streams of those that are not ours any more.
func (r *Remote) wake(names []string, now time.Time) {
	for _, name := range names {
		g := r.gateways[name]
		if g == nil {
			continue
		}
		for _, p := range g.pods {
			switch {
			case p.stream == nil:
			case !r.ours(g):
				p.stream.end(errNotOurs(name))
			default:
				p.stream.wake()
			}
		}
		r.owe(g, now)
	}
}

// owe notes since when each proxy of a Gateway is behind.
func (r *Remote) owe(g *gateway, now time.Time) {
	generation := r.parts.Part(g.name).Generation()
	for _, p := range g.pods {
		switch current := p.answered && p.acked >= generation; {
		case current || r.epoch == "" || g.awaits || g.undecided && p.stream != nil && p.stream.retains():
			p.behind = time.Time{}
		case p.behind.IsZero():
			p.behind = now
		}
	}
}

// markOverdue gives up waiting for those who owe an answer for too long, and says whether there is a new one.
func (r *Remote) markOverdue(g *gateway, now time.Time) bool {
	if !r.ours(g) {
		return false
	}
	found := false
	for name, p := range g.pods {
		if p.counts() && !p.behind.IsZero() && now.Sub(p.behind) >= r.o.HoldLimit {
			p.overdue, found = true, true
			r.o.Logger.Warn("a proxy does not acknowledge its configuration", "gateway", g.name, "pod", name, "connected", p.stream != nil,
				"acknowledged", p.acked, "current", r.parts.Part(g.name).Generation(), "error", p.refusal)
		}
	}
	return found
}

// forgetAnswers makes everything that the proxies said be of an epoch that is over.
func (r *Remote) forgetAnswers(g *gateway) {
	g.sent = false
	for name, p := range g.pods {
		if p.stream != nil {
			p.stream.end(errStandby)
			p.stream = nil
		}
		*p = pod{ready: p.ready, version: p.version}
		r.dropUnseen(g, name)
	}
}

// tell gives the translator what is new of the proxies and answers whether anything may be. translating is held.
func (r *Remote) tell() bool {
	t := r.o.Translator
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stale) == 0 {
		return false
	}
	for name := range r.stale {
		g := r.gateways[name]
		if g == nil {
			continue
		}
		r.tellFaults(g)
		r.tellTrouble(g)
		namespace, short, _ := strings.Cut(name, "/")
		if g.infrastructure == nil {
			t.SetInfrastructure(namespace, short, nil)
			continue
		}
		i := *g.infrastructure
		i.Class, i.Ports = "", nil // for open alone
		overdue, rejected := g.overdue(r.o.HoldLimit), g.rejections(func(id config.ID) bool {
			return id.Kind != config.KindRoute && id.Kind != config.KindListener
		})
		var lagging []string
		if i.Lagging != "" {
			lagging = append(lagging, i.Lagging)
		}
		switch {
		case g.served():
			i.Lagging = sentences(slices.Concat(lagging, overdue, rejected))
		case i.Waiting == "" && len(overdue) > 0:
			i.Waiting = sentences(overdue)
		default:
			i.Lagging = sentences(slices.Concat(lagging, rejected))
		}
		t.SetInfrastructure(namespace, short, &i)
	}
	clear(r.stale)
	return true
}

// served reports whether a proxy that is ready serves what is current, or may yet be waited for.
func (g *gateway) served() bool {
	for _, p := range g.pods {
		if p.ready && !p.overdue {
			return true
		}
	}
	return false
}

// tellTrouble tells whoever looks after the cluster what is wrong with the proxies of a Gateway, where that is news.
func (r *Remote) tellTrouble(g *gateway) {
	now := ""
	if r.epoch != "" {
		now = sentences(append(g.overdue(r.o.HoldLimit), g.rejections(func(config.ID) bool { return true })...))
	}
	if now == g.trouble {
		return
	}
	g.trouble = now
	if r.o.Trouble != nil && r.epoch != "" {
		namespace, name, _ := strings.Cut(g.name, "/")
		r.o.Trouble(namespace, name, now)
	}
}

// tellFaults tells the translator which listeners and routes the proxies cannot serve.
func (r *Remote) tellFaults(g *gateway) {
	now := g.listenerFaults()
	for key, fault := range now {
		if g.faults[key] != fault {
			r.o.Logger.Warn("a proxy cannot serve a listener, it tries again every few seconds", "listener", key, "others-do", fault.Others, "error", fault.Message)
			r.o.Translator.SetListenerFault(key, &fault)
		}
	}
	for key := range g.faults {
		if _, still := now[key]; !still {
			r.o.Translator.SetListenerFault(key, nil)
		}
	}
	g.faults = now

	routes := map[string]string{}
	for id, who := range g.rejecting() {
		if id.Kind == config.KindRoute {
			routes[id.Key] = g.rejection(id, who)
		}
	}
	namespace, name, _ := strings.Cut(g.name, "/")
	for key, message := range routes {
		if g.routeFaults[key] != message {
			r.o.Translator.SetRouteFault(key, namespace, name, &translate.RouteFault{Message: message})
		}
	}
	for key := range g.routeFaults {
		if _, still := routes[key]; !still {
			r.o.Translator.SetRouteFault(key, namespace, name, nil)
		}
	}
	g.routeFaults = routes
}

// listenerFaults are the listeners that not every proxy serves, by config.Listener.key. One that another proxy serves is
// not faulty for it: its clients reach that one.
func (g *gateway) listenerFaults() map[string]translate.ListenerFault {
	out := map[string]translate.ListenerFault{}
	faulty := map[string][]string{} // pods
	for _, pod := range slices.Sorted(maps.Keys(g.pods)) {
		p := g.pods[pod]
		note := func(key string, fault translate.ListenerFault) {
			if _, known := out[key]; !known {
				out[key] = fault
			}
			if !slices.Contains(faulty[key], pod) {
				faulty[key] = append(faulty[key], pod)
			}
		}
		for key, message := range p.listeners {
			note(key, translate.ListenerFault{Message: message})
		}
		for id, message := range p.rejected {
			if id.Kind == config.KindListener {
				note(id.Key, translate.ListenerFault{Message: message, Refused: true})
			}
		}
	}
	for key, fault := range out {
		for pod, p := range g.pods {
			if p.heard && p.counts() && !slices.Contains(faulty[key], pod) {
				fault.Others = true
			}
		}
		if fault.Others {
			fault.Message = fmt.Sprintf("proxy %s cannot serve it while others do: %s", listed(faulty[key]), fault.Message)
		}
		out[key] = fault
	}
	return out
}

// rejecting are the Resources that proxies cannot carry out, with these proxies, sorted.
func (g *gateway) rejecting() map[config.ID][]string {
	out := map[config.ID][]string{}
	for _, pod := range slices.Sorted(maps.Keys(g.pods)) {
		for id := range g.pods[pod].rejected {
			out[id] = append(out[id], pod)
		}
	}
	return out
}

// rejection is a sentence about a Resource that proxies cannot carry out.
func (g *gateway) rejection(id config.ID, pods []string) string {
	what := id.String()
	if id == (config.ID{}) {
		what = "everything"
	}
	return fmt.Sprintf("proxy %s cannot carry out %s: %s", listed(pods), what, g.pods[pods[0]].rejected[id])
}

// rejections are sentences about what proxies cannot carry out, of those Resources that count.
func (g *gateway) rejections(counts func(config.ID) bool) (out []string) {
	all := g.rejecting()
	for _, id := range slices.SortedFunc(maps.Keys(all), config.CompareID) {
		if counts(id) {
			out = append(out, g.rejection(id, all[id]))
		}
	}
	return out
}

// shownPods is how many pods or sentences a message has.
const shownPods = 3

// listed names pods.
func listed(pods []string) string {
	if len(pods) > shownPods {
		return fmt.Sprintf("%s and %d more", strings.Join(pods[:shownPods], ", "), len(pods)-shownPods)
	}
	return strings.Join(pods, ", ")
}

// overdue says which proxies are, each in a sentence. It stays the same while they are.
func (g *gateway) overdue(limit time.Duration) (out []string) {
	namespace, _, _ := strings.Cut(g.name, "/")
	for _, name := range slices.Sorted(maps.Keys(g.pods)) {
		switch p := g.pods[name]; {
		case !p.overdue:
		case p.refusal != "":
			out = append(out, fmt.Sprintf("proxy %s refuses its configuration: %s; see kubectl logs -n %s %s", name, p.refusal, namespace, name))
		case p.stream == nil:
			out = append(out, fmt.Sprintf("proxy %s has not been connected to the controller for %s and serves what it last had; see kubectl logs -n %s %s, or delete the pod", name, limit, namespace, name))
		default:
			out = append(out, fmt.Sprintf("proxy %s has not acknowledged its configuration within %s; see kubectl logs -n %s %s, or delete the pod", name, limit, namespace, name))
		}
	}
	return out
}

// sentences puts the first ones into one message.
func sentences(all []string) string {
	if len(all) > shownPods {
		all = append(slices.Clone(all[:shownPods]), fmt.Sprintf("and %d more", len(all)-shownPods))
	}
	return strings.Join(all, ". ")
}

var errStandby = status.Error(codes.Unavailable, "this controller does not lead")

// exists reports whether there is a pod, as far as anybody can know.
func (g *gateway) exists(pod, uid string) bool { return uid == "" || g.uids[pod] == uid }

func errNoPod(pod string) error {
	return status.Errorf(codes.PermissionDenied, "pod %s, which the token was issued to, is gone, or not known yet", pod)
}

// errNotOurs tells a proxy to go on with what it has: its pod is about to be deleted, or its
// Gateway comes back.
func errNotOurs(gateway string) error {
	return status.Errorf(codes.NotFound, "Gateway %s is not served by this controller; keep what you have", gateway)
}
