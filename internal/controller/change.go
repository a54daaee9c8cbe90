package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/status/writer"
	"github.com/moongate-dev/moongate/internal/translate"
)

// change applies one change of the cluster; the source calls it for one change at a time.
func (c *Controller) change(ch kube.Change) {
	c.objects.change(&ch)
	for _, id := range ch.Observed {
		c.writer.Observed(id)
	}
	for _, o := range ch.Upserts {
		if gw, ok := o.(*gwv1.Gateway); ok {
			c.writer.Gateway(gw.Namespace, gw.Name, string(gw.Spec.GatewayClassName))
		}
	}
	for _, id := range ch.Deletes {
		c.writer.Observed(id)
		if id.Group == gwv1.GroupName && id.Kind == string(translate.KindGateway) {
			c.writer.Gateway(id.Namespace, id.Name, "")
		}
	}
	if ch.ConcernsTranslation() {
		c.loop.Update(func(t *translate.Translator) {
			if ch.Full { // what is served first must be complete, and rotate updates it afterwards
				t.SetTickets(c.tickets.Current())
			}
			if ch.Installed != nil {
				t.SetInstalled(installed(ch.Installed))
			}
			for _, id := range ch.Deletes {
				if id.Kind == string(translate.KindSecret) { // the deletion may be the result of an earlier request
					if o := c.current(id); o != nil {
						t.Upsert(o)
						continue
					}
				}
				t.Delete(translate.Kind(id.Kind), id.Namespace, id.Name)
			}
			for _, o := range ch.Upserts {
				t.Upsert(o)
			}
		})
	}
	if ch.Full {
		close(c.read)
		c.log.Info("the cluster has been read", "objects", c.objects.len())
	}
}

// sweep passes to the writer the objects whose statuses may contain outdated entries of this controller, for example from an earlier
// leader.
func (c *Controller) sweep() {
	c.loop.Update(func(t *translate.Translator) {
		// The translator is still locked here, so nothing newer can be published before.
		c.writer.Sweep(unwanted(c.objects.children(), t))
	})
}

// unwanted returns those of the objects that should have no status. It excludes objects on which translation panics, because their
// desired status is not known. The writer itself keeps entries for unknown parents.
func unwanted(ids []kind.ObjectKey, t translation) (keys []kind.ObjectKey) {
	for _, id := range ids {
		if !t.HasStatus(id) && !t.Failing(id) {
			keys = append(keys, id)
		}
	}
	return keys
}

// gatewaysUnread reports whether there may be Gateways that were not read.
func (c *Controller) gatewaysUnread() bool {
	return c.source.UnreadAny(gwv1.GroupName, string(translate.KindGateway))
}

// parentUnknown reports whether it is not known what the Gateway or ListenerSet is that an object of the namespace refers to,
// because it was not read, or translation panics on it.
func (c *Controller) parentUnknown(namespace string, ref gwv1.ParentReference) (is bool) {
	c.loop.View(func(t *translate.Translator) { is = parentUnknown(c.source, t, namespace, ref) })
	return is
}

func parentUnknown(o objects, f failing, namespace string, ref gwv1.ParentReference) bool {
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	if ref.Kind == nil || *ref.Kind == gwv1.Kind(translate.KindGateway) {
		return gatewayUnread(o, f, namespace, string(ref.Name))
	}
	k := kind.Named(string(*ref.Kind))
	if k == nil || !k.OfListeners() {
		return false
	}
	id := k.Key(namespace, string(ref.Name))
	if o.Unread(id) || f.Failing(id) {
		return true
	}
	object, _ := o.Get(id)
	if object == nil {
		return false
	}
	parent, _ := kind.ParentGatewayOf(object)
	if parent.Kind != nil && *parent.Kind != gwv1.Kind(translate.KindGateway) {
		return false // its parent is not followed: ListenerSets that refer to each other would cause an endless loop
	}
	if parent.Namespace != nil {
		namespace = string(*parent.Namespace)
	}
	return gatewayUnread(o, f, namespace, string(parent.Name))
}

func installed(i *kube.Installed) translate.Installed {
	out := translate.Installed{UnreadNamespaces: i.UnreadNamespaces}
	for _, crd := range i.CRDs {
		out.CRDs = append(out.CRDs, translate.InstalledCRD(crd))
	}
	for _, u := range i.Unread {
		out.Unread = append(out.Unread, translate.UnreadKind{Kind: translate.Kind(u.Kind), Remedy: u.Remedy})
	}
	for _, k := range i.Kinds {
		out.Kinds = append(out.Kinds, translate.Kind(k.Kind))
	}
	return out
}

// publish passes statuses that may be written to the writer.
func (c *Controller) publish(changes []translate.StatusChange) {
	out := make([]writer.Change, len(changes))
	for i, ch := range changes {
		out[i] = writer.Change{Key: ch.Object, Desired: ch.Status, Generation: ch.Generation, UID: ch.UID}
	}
	c.writer.Publish(out)
}

func (c *Controller) fetch(ctx context.Context, requests []translate.SecretRequest) []metav1.Object {
	secrets := make([]kube.SecretRequest, len(requests))
	for i, r := range requests {
		secrets[i] = kube.SecretRequest{Namespace: r.Object.Namespace, Name: r.Object.Name, Needed: r.Needed}
	}
	found, unread := c.source.Fetch(ctx, secrets)
	for _, u := range unread {
		found = append(found, unreadSecret(u))
	}
	return found
}

func unreadSecret(u kube.UnreadSecret) *translate.UnreadSecret {
	return &translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: u.Name}, Forbidden: u.Forbidden}
}

// unread reports whether the state of a Gateway, or by config.MergedName of the merged Gateways of a class, is unknown, because it
// or its class was not read, or translation panics on it. Any Gateway that was not read may be one of a class.
func (c *Controller) unread(namespace, name string) (is bool) {
	c.loop.View(func(t *translate.Translator) { is = gatewayUnread(c.source, t, namespace, name) })
	return is
}

// objects is *kube.Source, or a substitute in tests.
type objects interface {
	Get(kind.ObjectKey) (metav1.Object, bool)
	Unread(kind.ObjectKey) bool
	UnreadAny(group, kind string) bool
}

// translation is what sweep needs of *translate.Translator, or a substitute in tests.
type translation interface {
	failing
	HasStatus(kind.ObjectKey) bool
}

// failing reports on which objects translation panics: *translate.Translator, or a substitute in tests.
type failing interface {
	Failing(kind.ObjectKey) bool
	// FailingOf is for the Gateways of a class.
	FailingOf(class string) bool
}

func gatewayUnread(o objects, f failing, namespace, name string) bool {
	if class, merged := config.MergedClass(name); merged {
		id := kind.ObjectKey{Group: gwv1.GroupName, Kind: string(translate.KindGatewayClass), Name: class}
		return o.Unread(id) || f.Failing(id) || f.FailingOf(class) || o.UnreadAny(gwv1.GroupName, string(translate.KindGateway))
	}
	id := kind.ObjectKey{Group: gwv1.GroupName, Kind: string(translate.KindGateway), Namespace: namespace, Name: name}
	if o.Unread(id) || f.Failing(id) {
		return true
	}
	gw, exists := o.Get(id)
	if !exists {
		return false
	}
	class := string(gw.(*gwv1.Gateway).Spec.GatewayClassName)
	return o.Unread(kind.ObjectKey{Group: gwv1.GroupName, Kind: string(translate.KindGatewayClass), Name: class})
}

// current returns a Secret as the source knows it now, or that it could not be read; nil if it does not exist.
func (c *Controller) current(key kind.ObjectKey) metav1.Object {
	if o, ok := c.source.Get(key); ok {
		return o
	}
	if u, ok := c.source.UnreadSecret(key.Namespace, key.Name); ok {
		return unreadSecret(u)
	}
	return nil
}

// objectsOf adapts the source for the writer.
type objectsOf struct{ source *kube.Source }

// Get returns an object as it was last seen.
func (o objectsOf) Get(key kind.ObjectKey) (metav1.Object, bool) {
	return o.source.Get(key)
}
