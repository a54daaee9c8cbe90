package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// changeEvery is the time between two edits.
const changeEvery = 200 * time.Millisecond

// edits is what a client saw of a route that was edited.
type edits struct {
	made     int
	requests int
	failures []string
	// switches is how often an answer came from another version than the answer before.
	switches int
	last     string
}

// measureChange edits a route over and over while one connection asks for it without a pause.
func measureChange(ctx context.Context, w *world, s *settings, r *report) error {
	const name = "route"
	versions := []gwv1.HTTPRouteRule{
		rule("/", backend, 8080),
		rule("/", backend, 80, addHeader(gwv1.HTTPRouteFilterResponseHeaderModifier)),
	}
	_, err := w.gateways.GatewayV1().HTTPRoutes(home).Create(ctx, route(home, name, versions[1]), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	if err := (&propagation{}).await(ctx, client, "http://"+w.address+"/", host(home, name)); err != nil {
		return err
	}

	asking, stop := context.WithCancel(ctx)
	e, ended := &edits{}, make(chan struct{})
	go func() {
		defer close(ended)
		for asking.Err() == nil {
			e.ask(client, w.address, host(home, name))
		}
	}()
	for i := range s.changes {
		if err = pause(ctx, changeEvery); err != nil {
			break
		}
		if err = w.setRules(ctx, home, name, versions[i%2]); err != nil {
			break
		}
		e.made++ // the client does not read it
	}
	err = errors.Join(err, pause(ctx, time.Second))
	stop()
	<-ended
	r.change(e)
	return errors.Join(err, e.err(), w.clear(ctx))
}

// ask is one request; each answer must be the backend's, by the port and the header of one version.
func (e *edits) ask(client *http.Client, address, host string) {
	e.requests++
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s/%d", address, e.requests), nil)
	if err != nil {
		e.failures = append(e.failures, err.Error())
		return
	}
	request.Host = host
	response, err := client.Do(request)
	if err != nil {
		e.failures = append(e.failures, err.Error())
		return
	}
	defer response.Body.Close()
	port, err := io.ReadAll(response.Body)
	e.answer(response.StatusCode, string(port), response.Header.Get("Added"), err)
}

func (e *edits) answer(code int, port, header string, err error) {
	version := port + header
	if err != nil || code != http.StatusOK || version != "8080yes" && version != "8081" {
		e.failures = append(e.failures, fmt.Sprintf("code %d, body %q, header %q, error %v", code, port, header, err))
		return
	}
	if e.last != "" && e.last != version {
		e.switches++
	}
	e.last = version
}

// err says what a client noticed. The last version must have come to be served, and without edits in
// between there would have been nothing to notice.
func (e *edits) err() error {
	switch {
	case len(e.failures) > 0:
		return fmt.Errorf("%d of %d requests failed, the first: %s", len(e.failures), e.requests, e.failures[0])
	case e.switches == 0 || e.switches > e.made || (e.made-e.switches)%2 != 0:
		return fmt.Errorf("after %d edits the answers changed %d times", e.made, e.switches)
	}
	return nil
}

// setRules edits a route, whoever else has written it meanwhile.
func (w *world) setRules(ctx context.Context, namespace, name string, rules ...gwv1.HTTPRouteRule) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"rules": rules}})
	if err != nil {
		return err
	}
	_, err = w.gateways.GatewayV1().HTTPRoutes(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
