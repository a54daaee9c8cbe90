package controller

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// The Events of a Gateway, or of the GatewayParameters that merge Gateways.
const (
	reasonProxiesLag   = "ProxiesLag"
	reasonProxiesServe = "ProxiesServe"
)

const (
	// eventRate and eventBurst bound how many Events are written; more are dropped, since the status has the truth.
	eventRate, eventBurst = 1, 50
	// eventTimeout bounds one write.
	eventTimeout = 10 * time.Second
)

// trouble is what is wrong with the proxies of a Gateway, or of merged ones by config.MergedName, "" once it is over.
type trouble struct{ namespace, name, what string }

// noteTrouble has an Event written. It never blocks.
func (c *Controller) noteTrouble(namespace, name, what string) {
	select {
	case c.troubles <- trouble{namespace, name, what}:
	default: // the API server does not answer, and the status says it too
	}
}

// writeEvents writes the Events of what noteTrouble is called with, until ctx ends.
func (c *Controller) writeEvents(ctx context.Context) error {
	limit := flowcontrol.NewTokenBucketRateLimiter(eventRate, eventBurst)
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-c.troubles:
			if !limit.TryAccept() {
				continue
			}
			if err := c.writeEvent(ctx, t); err != nil && ctx.Err() == nil {
				c.log.Warn("an Event cannot be written", "gateway", t.namespace+"/"+t.name, "message", t.what, "error", err)
			}
		}
	}
}

func (c *Controller) writeEvent(ctx context.Context, t trouble) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, GenerateName: "moongate-"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: gwv1.GroupVersion.String(), Kind: "Gateway", Namespace: t.namespace, Name: t.name,
		},
		Type: corev1.EventTypeWarning, Reason: reasonProxiesLag, Message: t.what,
		Source:              corev1.EventSource{Component: leaseName},
		ReportingController: reportingController, ReportingInstance: c.o.Identity, Action: "Deliver",
		FirstTimestamp: now, LastTimestamp: now, EventTime: metav1.NewMicroTime(now.Time), Count: 1,
	}
	if class, merged := config.MergedClass(t.name); merged {
		// Of a class itself an Event would be in namespace default, where nobody looks who may see the proxies.
		e.InvolvedObject.Name = c.parametersOf(class)
		e.InvolvedObject.APIVersion, e.InvolvedObject.Kind = v1alpha1.GroupVersion.String(), string(translate.KindGatewayParameters)
	}
	if t.what == "" {
		e.Type, e.Reason, e.Message = corev1.EventTypeNormal, reasonProxiesServe, "every proxy serves what is current"
	}
	involved := kind.ObjectKey{Group: e.InvolvedObject.GroupVersionKind().Group, Kind: e.InvolvedObject.Kind, Namespace: t.namespace, Name: e.InvolvedObject.Name}
	if o, ok := c.source.Get(involved); ok {
		e.InvolvedObject.UID, e.InvolvedObject.ResourceVersion = o.GetUID(), o.GetResourceVersion()
	}
	e.Message = strings.ToValidUTF8(e.Message[:min(len(e.Message), maxEventMessage)], "") // the cut may split a character
	_, err := c.clients.CoreV1().Events(t.namespace).Create(ctx, e, metav1.CreateOptions{})
	return err
}

// parametersOf is the name of the GatewayParameters of a class, "" where it has none.
func (c *Controller) parametersOf(class string) string {
	o, _ := c.source.Get(kind.ObjectKey{Group: gwv1.GroupName, Kind: string(translate.KindGatewayClass), Name: class})
	if gc, ok := o.(*gwv1.GatewayClass); ok && gc.Spec.ParametersRef != nil {
		return gc.Spec.ParametersRef.Name
	}
	return ""
}

// reportingController is a qualified name, with one slash at most; the name by which classes select the controller may have more.
const reportingController = v1alpha1.GroupName + "/" + leaseName

// maxEventMessage is what the API server allows, in bytes.
const maxEventMessage = 1024
