// Command scripted is a gateway that knows just enough to pass the suite's simplest
// tests: Accepted and Programmed for everything, exact and prefix paths, one
// backend per rule. It exists to prove that the test cluster and the way in which the
// suite is run are not shaped to Moongate, with which it shares nothing. It must
// never become useful.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	controllerName = "example.org/scripted"
	// namespace is the one of scripted.yaml; the Services of all Gateways are there.
	namespace  = "scripted"
	statusAddr = ":8080"
	// pause between two looks at everything. Watching would be more to write.
	pause = 100 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), gatewayv1.Install(scheme)); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	var ready atomic.Bool
	go serveReadiness(&ready)
	s := &script{client: c, gateways: map[client.ObjectKey]*gateway{}}
	for said := ""; ctx.Err() == nil; {
		err := s.play(ctx)
		// A conflict is another's change, which the next look sees.
		if err != nil && !apierrors.IsConflict(err) && err.Error() != said {
			said = err.Error()
			log.Print(said)
		}
		ready.Store(err == nil || ready.Load())
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func serveReadiness(ready *atomic.Bool) {
	log.Fatal(http.ListenAndServe(statusAddr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "has not seen the cluster yet", http.StatusServiceUnavailable)
		}
	})))
}
