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
	name           string          // "<namespace>/<name>"
	plan           *translate.Plan // nil: none
	infrastructure *translate.Infrastructure
	pods           map[string]*pod
	holding        map[translate.ObjectKey]struct{} // of Remote.held
	faults         map[string]string                // that the translator was told, by config.Listener.key
	uids           map[string]string                // of the pods that there are, by name
	// awaits says that a listener wants an object that is not known yet. What was translated without it is neither
	// sent nor published: its proxies keep the certificate that they have.
	awaits bool
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
	listeners map[string]string // faults by config.Listener.key
	rejected  map[string]string // faults by Resource
}

// counts says that what is said to be served must be served by this proxy.
func (p *pod) counts() bool { return !p.overdue && (p.ready || p.answered && p.stream != nil) }

// serves says that everyone who counts has acknowledged the generation.
func (g *gateway) serves(generation uint64) bool {
	if g.awaits {
		return false
	}
	for _, p := range g.pods {
		if p.counts() && (!p.answered || p.acked < generation) {
			return false
		}
	}
	return true
}

// open says that clients can reach what a status calls programmed: the cluster has followed the plan
// that the status belongs to. Until then the status speaks of what ran before.
func (g *gateway) open(c *translate.StatusChange) bool {
	s, ok := c.Status.(*gwv1.GatewayStatus)
	p, i := g.plan, g.infrastructure
	if !ok || p == nil || p.Hold || i == nil || !meta.IsStatusConditionTrue(s.Conditions, string(gwv1.GatewayConditionProgrammed)) {
		return true
	}
	if i.Class != "" && i.Class != p.Class {
		return false
	}
	missing := func(port translate.PlanPort) bool { return !slices.Contains(i.Ports, port) }
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
	if g != nil && !r.ours(g) && g.infrastructure == nil && len(g.pods) == 0 && len(g.holding) == 0 && len(g.faults) == 0 && len(g.uids) == 0 && !g.awaits {
		delete(r.gateways, name)
	}
	if r.gateways[name] == nil {
		r.parts.Forget(name)
	}
}

// ours says that there is something to be served for the Gateway.
func (r *Remote) ours(g *gateway) bool { return g.plan != nil || r.parts.Has(g.name) }

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
		case current || r.epoch == "" || g.awaits:
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
		namespace, short, _ := strings.Cut(name, "/")
		if g.infrastructure == nil {
			t.SetInfrastructure(namespace, short, nil)
			continue
		}
		i := *g.infrastructure
		i.Class, i.Ports = "", nil // for open alone
		if i.Waiting == "" {
			i.Waiting = g.waiting(r.o.HoldLimit)
		}
		t.SetInfrastructure(namespace, short, &i)
	}
	clear(r.stale)
	return true
}

// tellFaults: a listener is faulty where any proxy cannot serve it.
func (r *Remote) tellFaults(g *gateway) {
	now := map[string]string{}
	for _, pod := range slices.Sorted(maps.Keys(g.pods)) {
		for key, message := range g.pods[pod].listeners {
			if now[key] == "" {
				now[key] = message
			}
		}
	}
	for key, message := range now {
		if g.faults[key] != message {
			r.o.Logger.Warn("a proxy cannot listen, it tries again every few seconds", "listener", key, "error", message)
			r.o.Translator.SetListenerFault(key, &translate.ListenerFault{Message: message})
		}
	}
	for key := range g.faults {
		if _, still := now[key]; !still {
			r.o.Translator.SetListenerFault(key, nil)
		}
	}
	g.faults = now
}

// shownPods is how many pods a message names.
const shownPods = 3

// waiting says which proxies are overdue, "" for none. It stays the same while they do.
func (g *gateway) waiting(limit time.Duration) string {
	namespace, _, _ := strings.Cut(g.name, "/")
	var out []string
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
	if len(out) > shownPods {
		out = append(out[:shownPods], fmt.Sprintf("and %d more", len(out)-shownPods))
	}
	return strings.Join(out, ". ")
}

// rejection prints the name of a Resource that a proxy speaks of.
func rejection(kind uint32, key string) string {
	if kind == 0 || kind > 255 {
		return "unknown"
	}
	return config.ID{Kind: config.Kind(kind), Key: key}.String()
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
