package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/listener"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// listeners contains the listeners of Gateways and of the ListenerSets that are attached to them.
type listeners struct {
	o                  *Options
	gatewayObjects     *incremental.Collection[name, *gwv1.Gateway]
	listenerSetObjects *incremental.Collection[kindName, metav1.Object]
	installation       *installation
	namespaces         *namespaces
	gateways           *gateways

	sets              *incremental.Collection[kindName, *listenerSet]          // of managed Gateways
	setsByGateway     *incremental.Index[name, kindName, *listenerSet]         // those that are attached
	setsNaming        *incremental.Index[name, kindName, *listenerSet]         // all, attached or not
	own               *incremental.Collection[listenerKey, *listener.Listener] // of Gateways
	setSpecs          *incremental.Collection[listenerKey, setListener]        // of ListenerSets, before the check for conflicts with others of their Gateway
	ownByGateway      *incremental.Index[name, listenerKey, *listener.Listener]
	setSpecsByGateway *incremental.Index[name, listenerKey, setListener]
	setSpecsByOwner   *incremental.Index[kindName, listenerKey, setListener]
	setConflicts      *incremental.Collection[listenerKey, gwv1.ListenerConditionReason] // of listeners that lose a conflict
	ofSets            *incremental.Collection[listenerKey, *listener.Listener]           // of ListenerSets
	all               *incremental.Collection[listenerKey, *listener.Listener]           // of Gateways and ListenerSets
	claims            *incremental.Collection[listenerKey, claim]
	claimsByPort      *incremental.Index[sharedPort, listenerKey, claim] // of Gateways that share ports, like claims and portConflicts
	portConflicts     *incremental.Collection[listenerKey, lostPort]     // of listeners that lose
	excessPorts       *incremental.Collection[sharedPort, struct{}]
	byBackend         *incremental.Index[policy.Target, listenerKey, *listener.Listener] // by an object that a filter of the listener names as a backend
}

func newListeners(e *incremental.Engine, o *Options,
	gatewayObjects *incremental.Collection[name, *gwv1.Gateway],
	listenerSetObjects *incremental.Collection[kindName, metav1.Object],
	installation *installation, namespaces *namespaces, gateways *gateways) *listeners {
	lis := &listeners{o: o, gatewayObjects: gatewayObjects, listenerSetObjects: listenerSetObjects, installation: installation, namespaces: namespaces, gateways: gateways}
	lis.declareListenerSets(e)
	lis.declareListeners(e)
	return lis
}

func (lis *listeners) declareListeners(e *incremental.Engine) {
	lis.own = incremental.FlatMap(e, "listener", lis.gatewayObjects,
		func(v *incremental.View, n name, gw *gwv1.Gateway) []incremental.Entry[listenerKey, *listener.Listener] {
			o, managed := lis.listenerOptions(v, n)
			if !managed {
				return nil
			}
			list := listener.New(gw, o)
			entries := make([]incremental.Entry[listenerKey, *listener.Listener], len(list))
			for i, l := range list {
				entries[i] = incremental.Entry[listenerKey, *listener.Listener]{Key: listenerKey{Gateway: n, Name: l.Name}, Value: l}
			}
			return entries
		}, sameDeeply[*listener.Listener])
	lis.declareListenersOfSets(e)
	lis.all = incremental.Union(e, "all listeners", lis.own, lis.ofSets)
	lis.declarePortConflicts(e)
	lis.byBackend = incremental.NewIndex(lis.all, "listeners by backend that they name", namedByListener)
}

// listenerOptions returns what is needed to read the listeners of a Gateway; ok is false if it is not managed.
func (lis *listeners) listenerOptions(v *incremental.View, gateway name) (listener.Options, bool) {
	terms, managed := incremental.Fetch(v, lis.gateways.terms, gateway)
	return listener.Options{
		Created: terms.Created, Addresses: terms.Addresses, Refused: terms.Refused, Pending: terms.Pending, Unserved: terms.Unserved, Client: terms.Client,
		Reserved: lis.o.ReservedPorts, Routes: routeKindsOf, Lacks: lis.installation.lacks(v),
	}, managed
}

// claims reports whether the listener should be served, as far as its own Gateway determines.
func claims(l *listener.Listener) bool { return l.Valid() && !l.Unserved }
