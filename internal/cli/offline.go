package cli

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/explain"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/lint"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/manifest"
	"github.com/moongate-dev/moongate/internal/status/show"
	"github.com/moongate-dev/moongate/internal/translate"
)

// offline is the result of manifests without serving them.
type offline struct {
	resources []*config.Resource
	status    admin.Status
	// controller is the controllerName of the GatewayClasses that count as Moongate's.
	controller string
	objects    []files.Object
	positions  map[kind.ObjectKey]files.Position
	source     *files.Source
	count      int             // number of objects to report on
	empty      error           // set if the manifests contain nothing to report on; see objects.empty
	about      map[string]bool // objects whose statuses are reported, by show.Object.String; nil means all
	refused    map[string]bool // objects without a valid definition, by show.Object.String
	suggest    *suggestions
	gateway    string                  // see narrow
	accepted   map[kind.ObjectKey]bool // see objects.accepted
	// redisKnown is set if the controller of the cluster must have --redis, because it has accepted a policy that requires it.
	redisKnown bool
}

// readOffline reads objects once, and translates them. It returns an error if nothing could be read.
func (in *input) readOffline(cmd *cobra.Command) (*offline, error) {
	o, err := in.read(cmd)
	if err != nil {
		return nil, err
	}
	off := in.translated(o)
	if len(in.paths) > 0 {
		off.empty = o.empty(cmd)
	}
	if len(in.paths) > 0 && in.cluster.use {
		off.about = map[string]bool{}
		for id := range off.positions {
			off.about[id.String()] = true
		}
		off.status.Problems = slices.DeleteFunc(off.status.Problems, func(p admin.Problem) bool { return p.File == "" && !off.about[p.Object] })
	}
	off.status.Problems = append(off.status.Problems, o.unlisted...)
	return off, nil
}

// unknownRedis stands for the Redis server of --redis of run or of a controller if it is not known whether the flag is set.
const unknownRedis = "unknown.invalid:6379"

// translated translates objects, either for a cluster or for a single process whose Gateways share its ports.
func (in *input) translated(all *objects) *offline {
	cluster := in.cluster.use
	bind, _ := bindAddresses(in.bind) // check has validated it
	t := translate.New(translate.Options{ControllerName: in.cluster.manages(), DefaultAddresses: statusAddresses(bind), Bind: texts(bind), OwnPorts: cluster,
		RateLimits: &config.RateLimitService{Address: cmp.Or(in.redis, unknownRedis)}})
	store := newObjectStore(in.cluster.manages())
	store.change(files.Change{Upserts: all.Objects, Problems: all.Problems, Full: true})
	positions := map[kind.ObjectKey]files.Position{}
	count := 0
	for _, o := range all.Objects {
		t.Upsert(o.Object)
		if o.Position != (files.Position{}) { // not a Namespace that exists only because objects are in it
			positions[o.ID] = o.Position
			if _, refused := o.Object.(*kind.Undecoded); !refused {
				count++
			}
		}
	}
	result := t.Commit()
	store.publish(result.Statuses)
	off := &offline{resources: result.Config.Upserts, objects: all.Objects, status: store.status(), positions: positions, source: all.source, count: count, suggest: newSuggestions(all.Objects, all.Problems),
		accepted: all.accepted, controller: in.cluster.manages()}
	if len(in.paths) == 0 {
		off.count = len(all.Objects) // those of the cluster
	}
	off.status.Problems = append(off.status.Problems, dangling(all.source, all.Objects, all.Problems, cluster)...)
	off.refused = map[string]bool{}
	valid := map[kind.ObjectKey]bool{}
	for _, o := range all.Objects {
		_, undecoded := o.Object.(*kind.Undecoded)
		valid[o.ID] = !undecoded
	}
	for _, p := range all.Problems {
		if !valid[p.Object] && !p.Ignored && p.Object.Name != "" {
			off.refused[p.Object.String()] = true
		}
	}
	off.lint(all.Objects, all.Problems)
	off.status.Problems = append(off.status.Problems, off.redisNeeded()...)
	for _, u := range result.UnattachedPolicies {
		off.status.Problems = append(off.status.Problems, unattachedProblem(u, fieldPosition(all.source, positions[u.Object], u.Field)))
	}
	return off
}

// place returns the place of an object as file:line.
func (o *offline) place(kindName, namespace, name string) string {
	return o.document(kindName, namespace, name).String()
}

// placeOf returns the place of a field of an object as file:line.
func (o *offline) placeOf(object *show.Object, field string) string {
	return o.positionOf(object, field).String()
}

// positionOf returns the position of a field of an object; the zero value if it is not known.
func (o *offline) positionOf(object *show.Object, field string) files.Position {
	if p := o.document(object.Kind, object.Namespace, object.Name); p != (files.Position{}) {
		return fieldPosition(o.source, p, field)
	}
	return files.Position{}
}

// document returns the position of an object; the zero value if it is not known.
func (o *offline) document(kindName, namespace, name string) files.Position {
	if k := kind.Named(kindName); k != nil {
		return o.positions[k.Key(namespace, name)]
	}
	return files.Position{}
}

// fieldPosition returns the position of a field in the document at p, or that of the document if its file no longer exists.
func fieldPosition(source *files.Source, p files.Position, field string) files.Position {
	if source == nil { // as for objects of a running gateway
		return p
	}
	if text, ok := source.Text(p.File); ok {
		p.Line = manifest.Locate(text, p.Line, field)
	}
	return p
}

// narrow keeps the listeners of one Gateway, "<namespace>/<name>", and of those that are merged with it, because only these share
// ports in a cluster. If gateway is "", it selects the only one with listeners that match the question; if there are several, the
// error names them.
func (o *offline) narrow(gateway string, ask *explain.Question) error {
	var all, asked []string
	proxies := map[string]string{} // proxies by Gateway
	for _, r := range o.resources {
		if l := r.GetListener(); l != nil {
			all = append(all, l.Gateway)
			proxies[l.Gateway] = cmp.Or(l.Merged, l.Gateway)
			if ask.IsFor(l) {
				asked = append(asked, l.Gateway)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(asked)
	all = slices.Compact(all)
	asked = slices.CompactFunc(asked, func(a, b string) bool { return proxies[a] == proxies[b] })
	switch {
	case gateway != "" && !slices.Contains(all, gateway):
		return usage("no listener belongs to Gateway %s; Gateways with listeners: %s", gateway, cmp.Or(strings.Join(all, ", "), "none"))
	case gateway == "" && len(asked) > 1:
		return usage("several Gateways listen on that port: add --gateway with one of %s", strings.Join(asked, ", "))
	case gateway == "" && len(asked) == 1:
		gateway = asked[0]
	case gateway == "":
		return nil // nothing listens there, and the answer lists what exists
	}
	o.gateway = gateway
	o.resources = slices.DeleteFunc(o.resources, func(r *config.Resource) bool {
		l := r.GetListener()
		return l != nil && proxies[l.Gateway] != proxies[gateway]
	})
	return nil
}

// world returns the world for explain.
func (o *offline) world() explain.World {
	w := explain.World{Resources: o.resources, Gateway: o.gateway, Items: o.status.Items, ControllerName: o.controller, Place: o.place, Suggest: o.suggest.rewrite}
	if !o.redisKnown {
		w.UnknownRedis = unknownRedis
	}
	for _, p := range o.status.Problems {
		if p.Missing() {
			w.Refused = append(w.Refused, problemLine(p))
		}
	}
	return w
}

// statusAddresses returns the status.addresses of a Gateway without spec.addresses: those on which it listens.
func statusAddresses(bind []netip.Addr) []string {
	if len(bind) == 0 {
		return []string{netip.IPv4Unspecified().String(), netip.IPv6Unspecified().String()}
	}
	return texts(bind)
}

func texts(addrs []netip.Addr) []string {
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.String()
	}
	return texts
}

// lint adds warnings about what is probably not intended.
func (o *offline) lint(objects []files.Object, problems []files.Problem) {
	var refused []kind.ObjectKey
	for _, p := range problems {
		if o.refused[p.Object.String()] {
			refused = append(refused, p.Object)
		}
	}
	typed := make([]metav1.Object, len(objects))
	var older []lint.Finding
	for i, object := range objects {
		typed[i] = object.Object
		if o.positions[object.ID] != (files.Position{}) && object.Older != "" {
			older = append(older, lint.OlderVersion(object.Object, object.Older))
		}
	}
	for _, f := range append(older, lint.Lint(typed, refused, o.resources, time.Now())...) {
		at := fieldPosition(o.source, o.positions[f.Object], f.Field)
		o.status.Problems = append(o.status.Problems, admin.Problem{File: at.File, Line: at.Line, Object: f.Object.String(), Field: f.Field, Message: f.Message, Remedy: f.Remedy, Warning: true})
	}
}

// unattachedProblem returns a problem for an object without a status that could report it.
func unattachedProblem(u translate.UnattachedPolicy, at files.Position) admin.Problem {
	return admin.Problem{File: at.File, Line: at.Line, Object: u.Object.String(), Field: u.Field, Message: u.Message, Remedy: u.Remedy}
}

// redisNeeded warns about policies whose global rate limits need a Redis server of which it is not known whether it exists, and sets
// redisKnown.
func (o *offline) redisNeeded() (warnings []admin.Problem) {
	unknown := map[string]bool{} // by Gateway
	for _, r := range o.resources {
		if s := r.GetRateLimitService(); s.GetAddress() == unknownRedis {
			unknown[s.Key] = true
		}
	}
	policies := map[kind.ObjectKey]bool{}
	for _, r := range o.resources {
		route := r.GetRoute()
		if !slices.ContainsFunc(route.GetAttachments(), func(a *config.Attachment) bool {
			gateway, _ := config.SplitListenerKey(a.Listener)
			return unknown[gateway]
		}) {
			continue
		}
		for _, rule := range route.Rules {
			for _, l := range rule.GetTraffic().GetRateLimits().GetGlobal() {
				namespace, name, _ := strings.Cut(config.RateLimitPolicy(l.Name), "/")
				id := kind.BackendTrafficPolicy.Key(namespace, name)
				policies[id] = true
				o.redisKnown = o.redisKnown || o.accepted[id] // one server serves all Gateways whose GatewayParameters name none
			}
		}
	}
	if o.redisKnown {
		return nil
	}
	const field = "spec.rateLimit.global"
	for _, id := range slices.SortedFunc(maps.Keys(policies), kind.ObjectKey.Compare) {
		at := fieldPosition(o.source, o.positions[id], field)
		warnings = append(warnings, admin.Problem{File: at.File, Line: at.Line, Object: id.String(), Field: field, Warning: true,
			Message: "it counts in a Redis, which nothing here names: without one the policy is not accepted, and its requests are answered 500 policy_invalid",
			Remedy:  "start Moongate with --redis ADDRESS and give check the same flag, or name one in spec.classOnly.rateLimit.redis of the class's GatewayParameters"})
	}
	return warnings
}
