package controller

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/translate"
)

type cluster struct {
	gateways map[string]string // the class, by namespace/name
	unread   map[string]bool   // by kind, namespace and name, as kube.ID prints them
	failing  map[string]bool   // the same
}

func (c cluster) Get(id kube.ID) (metav1.Object, bool) {
	class, ok := c.gateways[id.Namespace+"/"+id.Name]
	return &gwv1.Gateway{Spec: gwv1.GatewaySpec{GatewayClassName: gwv1.ObjectName(class)}}, ok
}

func (c cluster) Unread(id kube.ID) bool { return c.unread[id.String()] }

func (c cluster) Failing(key translate.ObjectKey) bool { return c.failing[kube.ID(key).String()] }

// TestGatewayUnread is about Gateways without a plan: only those that were read, with their class, are not ours.
func TestGatewayUnread(t *testing.T) {
	c := cluster{
		gateways: map[string]string{"shop/foreign": "foreign", "shop/lost": "lost"},
		unread:   map[string]bool{"Gateway shop/bad": true, "GatewayClass lost": true},
		failing:  map[string]bool{"Gateway shop/panics": true},
	}
	for name, want := range map[string]bool{"foreign": false, "gone": false, "bad": true, "lost": true, "panics": true} {
		if got := gatewayUnread(c, c, "shop", name); got != want {
			t.Errorf("%s: unread is %v", name, got)
		}
	}
}

// TestFirstGenerationWaitsForSecrets waits as long as there are Secrets that could not be read, but not for ever.
func TestFirstGenerationWaitsForSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, left := time.Now(), 5
		unread := func() int { left = max(left-1, 0); return left }
		waitForSecrets(t.Context(), secretsLimit, unread, slog.New(slog.DiscardHandler))
		if left != 0 || time.Since(start) >= time.Second {
			t.Errorf("%d are unread after %s", left, time.Since(start))
		}
		start = time.Now()
		waitForSecrets(t.Context(), secretsLimit, func() int { return 1 }, slog.New(slog.DiscardHandler))
		if waited := time.Since(start); waited < secretsLimit || waited > secretsLimit+time.Second {
			t.Errorf("waited %s for a Secret that cannot be read", waited)
		}
	})
}
