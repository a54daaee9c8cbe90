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

// The reasons of Events of a Gateway, or of the GatewayParameters that merge Gateways, that are not about conditions.
const (
	reasonProxiesLag         = "ProxiesLag"
	reasonProxiesServe       = "ProxiesServe"
	reasonProvisioningFailed = "ProvisioningFailed"
	reasonProvisioned        = "Provisioned"
)

// The reasons of Events of an object whose status has no room for entries of this controller, and has room again.
const (
	reasonStatusFull    = "StatusFull"
	reasonStatusHasRoom = "StatusHasRoom"
)

// The actions of Events.
const (
	actionDeliver      = "Deliver"
	actionProvision    = "Provision"
	actionUpdateStatus = "UpdateStatus"
)

// reportingController is a qualified name, with at most one slash; the controllerName in GatewayClasses may have more.
const reportingController = v1alpha1.GroupName + "/" + LeaseName

// noteStatus records what a written status reports that it did not report before. What it reports since an earlier leader has
// written it was recorded by that one.
func (c *Controller) noteStatus(before, after metav1.Object) {
	if after.GetNamespace() == "" { // Events of a GatewayClass would be in another namespace, where users do not look for them
		return
	}
	for _, t := range status.Transitions(kind.StatusOf(before), kind.StatusOf(after), gwv1.GatewayController(c.o.ControllerName)) {
		c.events.Record(event.Event{Regarding: c.reference(after), Warning: t.Bad, Reason: t.Reason, Action: actionUpdateStatus, Note: t.Message})
	}
}

// noteOmitted records what the status of an object has no room for, "" once it has. Since nothing of that is stored, each leader records
// it. It never blocks.
func (c *Controller) noteOmitted(o metav1.Object, message string) {
	e := event.Event{Regarding: c.reference(o), Warning: true, Reason: reasonStatusFull, Action: actionUpdateStatus, Note: message}
	if message == "" {
		e.Warning, e.Reason, e.Note = false, reasonStatusHasRoom, "the status has room for all entries of this controller"
	}
	c.events.Record(e)
}

// noteTrouble records what is wrong with the proxies of a Gateway, or of merged ones by config.MergedName, "" once it is resolved.
// It never blocks.
func (c *Controller) noteTrouble(namespace, name, what string) {
	c.noteGateway(namespace, name, actionDeliver, what, reasonProxiesLag, reasonProxiesServe, "every proxy serves what is current")
}

// noteProblem records why the objects of a Gateway cannot be applied, "" once they are. It never blocks.
func (c *Controller) noteProblem(namespace, name, what string) {
	c.noteGateway(namespace, name, actionProvision, what, reasonProvisioningFailed, reasonProvisioned, "everything that runs for the Gateway is as it should be")
}

// noteGateway records what is wrong with a Gateway, or that it is resolved. What its status reported when this replica became leader
// is not recorded: the previous leader has recorded it.
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
		// An Event of the class would be in namespace default, where the users who may see the proxies do not look.
		key = kind.ObjectKey{Group: v1alpha1.GroupName, Kind: string(translate.KindGatewayParameters), Namespace: namespace, Name: c.parametersOf(class)}
		e.Regarding = corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: key.Kind, Namespace: namespace, Name: key.Name}
	}
	if o, ok := c.source.Get(key); ok {
		e.Regarding = c.reference(o)
	}
	c.events.Record(e)
}

const kindGateway = "Gateway"

// parametersOf returns the name of the GatewayParameters of a class, "" if it has none.
func (c *Controller) parametersOf(class string) string {
	o, _ := c.source.Get(kind.ObjectKey{Group: gwv1.GroupName, Kind: string(translate.KindGatewayClass), Name: class})
	if gc, ok := o.(*gwv1.GatewayClass); ok && gc.Spec.ParametersRef != nil {
		return gc.Spec.ParametersRef.Name
	}
	return ""
}

// inherit records what the statuses of Gateways report when this replica becomes leader, before it writes any.
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
	c.setInherited(messages)
}

// inheritance is how long the texts of these statuses are not recorded as Events. By then every remaining problem has occurred
// again, and a later one is new.
const inheritance = 10 * time.Minute

func (c *Controller) setInherited(messages map[[2]string][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inheritedMessages, c.inheritedUntil = messages, time.Now().Add(inheritance)
}

// inherited reports whether the status of a Gateway, or that of any merged one, contained a text when this replica became leader. It
// returns true only once: the same text is new afterwards.
func (c *Controller) inherited(namespace, name, text string) (is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.inheritedUntil) {
		c.inheritedMessages = nil
		return false
	}
	of := [2]string{namespace, name}
	candidates := map[[2]string][]string{of: c.inheritedMessages[of]}
	if _, merged := config.MergedClass(name); merged {
		candidates = c.inheritedMessages
	}
	for at, messages := range candidates {
		rest := slices.DeleteFunc(messages, func(message string) bool { return strings.Contains(message, text) })
		is = is || len(rest) < len(messages)
		if len(rest) == 0 {
			delete(c.inheritedMessages, at)
		} else {
			c.inheritedMessages[at] = rest
		}
	}
	return is
}

// reference returns the reference for Events, in the form by which "kubectl describe" finds them.
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
