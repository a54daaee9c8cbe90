package controller

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/event"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/translate"
)

// The Events of a Gateway, or of the GatewayParameters that merge Gateways, that are not of conditions.
const (
	reasonProxiesLag         = "ProxiesLag"
	reasonProxiesServe       = "ProxiesServe"
	reasonProvisioningFailed = "ProvisioningFailed"
	reasonProvisioned        = "Provisioned"
)

// What the controller did when an Event came about.
const (
	actionDeliver      = "Deliver"
	actionProvision    = "Provision"
	actionUpdateStatus = "UpdateStatus"
)

// reportingController is a qualified name, with one slash at most; the name by which classes select the controller may have more.
const reportingController = v1alpha1.GroupName + "/" + LeaseName

// noteStatus records what a status that was written says that it did not say before. What it says since an earlier leader has written it was recorded then.
func (c *Controller) noteStatus(before, after metav1.Object) {
	if after.GetNamespace() == "" { // a GatewayClass, whose Events would be in a namespace where nobody looks for them
		return
	}
	for _, t := range status.Transitions(kind.StatusOf(before), kind.StatusOf(after), gwv1.GatewayController(c.o.ControllerName)) {
		c.events.Record(event.Event{Regarding: c.reference(after), Warning: t.Bad, Reason: t.Reason, Action: actionUpdateStatus, Note: t.Message})
	}
}

// noteTrouble records what is wrong with the proxies of a Gateway, or of merged ones by config.MergedName, "" once it is over. It never blocks.
func (c *Controller) noteTrouble(namespace, name, what string) {
	c.noteGateway(namespace, name, actionDeliver, what, reasonProxiesLag, reasonProxiesServe, "every proxy serves what is current")
}

// noteProblem records why what runs for a Gateway is not as it should be, "" once it is. It never blocks.
func (c *Controller) noteProblem(namespace, name, what string) {
	c.noteGateway(namespace, name, actionProvision, what, reasonProvisioningFailed, reasonProvisioned, "everything that runs for the Gateway is as it should be")
}

// noteGateway records what is wrong with a Gateway, or that it is over. What its status said when this replica began to lead is not recorded: the leader before
// has done that.
func (c *Controller) noteGateway(namespace, name, action, what, bad, good, over string) {
	if what != "" && c.inherited(namespace, name, what) {
		return
	}
	e := event.Event{Warning: what != "", Reason: bad, Action: action, Note: what}
	if what == "" {
		e.Reason, e.Note = good, over
	}
	key := kind.ObjectKey{Group: gwv1.GroupName, Kind: kindGateway, Namespace: namespace, Name: name}
	e.Regarding = corev1.ObjectReference{APIVersion: gwv1.GroupVersion.String(), Kind: kindGateway, Namespace: namespace, Name: name}
	if class, merged := config.MergedClass(name); merged {
		// Of a class itself an Event would be in namespace default, where nobody looks who may see the proxies.
		key = kind.ObjectKey{Group: v1alpha1.GroupName, Kind: string(translate.KindGatewayParameters), Namespace: namespace, Name: c.parametersOf(class)}
		e.Regarding = corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: key.Kind, Namespace: namespace, Name: key.Name}
	}
	if o, ok := c.source.Get(key); ok {
		e.Regarding = c.reference(o)
	}
	c.events.Record(e)
}

const kindGateway = "Gateway"

// parametersOf is the name of the GatewayParameters of a class, "" where it has none.
func (c *Controller) parametersOf(class string) string {
	o, _ := c.source.Get(kind.ObjectKey{Group: gwv1.GroupName, Kind: string(translate.KindGatewayClass), Name: class})
	if gc, ok := o.(*gwv1.GatewayClass); ok && gc.Spec.ParametersRef != nil {
		return gc.Spec.ParametersRef.Name
	}
	return ""
}

// inherit notes what the statuses of Gateways say as this replica begins to lead, before it writes any.
func (c *Controller) inherit() {
	messages := map[[2]string][]string{}
	for _, key := range c.objects.all() {
		o, _ := c.source.Get(key)
		gw, ok := o.(*gwv1.Gateway)
		if !ok {
			continue
		}
		for _, condition := range gw.Status.Conditions {
			if condition.Message != "" {
				at := [2]string{gw.Namespace, gw.Name}
				messages[at] = append(messages[at], condition.Message)
			}
		}
	}
	c.setSaid(messages)
}

// inheritance is for how long what statuses said as this replica began to lead is no news. By then all that still goes wrong has been tried and has failed, and
// what was over meanwhile may begin anew.
const inheritance = 10 * time.Minute

func (c *Controller) setSaid(messages map[[2]string][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said, c.saidUntil = messages, time.Now().Add(inheritance)
}

// inherited reports whether the status of a Gateway, or that of any for merged ones, had a text as this replica began to lead. It does so once: later the same is news.
func (c *Controller) inherited(namespace, name, text string) (is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.saidUntil) {
		c.said = nil
		return false
	}
	of := [2]string{namespace, name}
	said := map[[2]string][]string{of: c.said[of]}
	if _, merged := config.MergedClass(name); merged {
		said = c.said
	}
	for at, messages := range said {
		rest := slices.DeleteFunc(messages, func(message string) bool { return strings.Contains(message, text) })
		is = is || len(rest) < len(messages)
		if len(rest) == 0 {
			delete(c.said, at)
		} else {
			c.said[at] = rest
		}
	}
	return is
}

// reference is what Events regard, as "kubectl describe" looks for it.
func (c *Controller) reference(o metav1.Object) corev1.ObjectReference {
	ref := corev1.ObjectReference{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
	if k := kind.Of(o); k != nil {
		version := c.objects.version(k.Group, k.Name)
		if version == "" {
			version = k.Versions[0]
		}
		ref.APIVersion, ref.Kind = k.Group+"/"+version, k.Name
	}
	return ref
}
