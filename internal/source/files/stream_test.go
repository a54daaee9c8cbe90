package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// TestStreams: the standard input and pipes are read once, and stay as they are while files change beside them.
func TestStreams(t *testing.T) {
	t.Chdir(t.TempDir())
	object := func(name string) string { return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}}\n" }
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		io.WriteString(w, object("piped")+"---\n- 1\n")
		w.Close()
	}()
	write(t, "m/a.yaml", object("file"))
	pipe := fmt.Sprintf("/proc/self/fd/%d", r.Fd())
	s, err := New([]string{"-", pipe, "m", "-"}, Options{Stdin: strings.NewReader(object("given"))})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ConfigMap default/file", "ConfigMap default/given", "ConfigMap default/piped"}
	for range 2 {
		loaded := s.Load()
		if got := names(loaded.Objects); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if len(loaded.Problems) != 1 || loaded.Problems[0].Position != (Position{File: pipe, Line: 3}) {
			t.Errorf("problems %v, want one of the pipe's third line", loaded.Problems)
		}
	}
	if text, ok := s.Text(StdinName); !ok || string(text) != object("given") {
		t.Errorf("Text says %q, %t", text, ok)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, ended := make(chan Change), make(chan error)
	go func() { ended <- s.Run(ctx, func(c Change) { changes <- c }) }()
	if first := <-changes; len(first.Upserts) != len(want)+1 { // and the Namespace
		t.Errorf("the first change has %d objects", len(first.Upserts))
	}
	write(t, "m/b.yaml", object("later"))
	select {
	case c := <-changes:
		if got := names(c.Upserts); !slices.Equal(got, []string{"ConfigMap default/later"}) || len(c.Deletes) > 0 {
			t.Errorf("a new file changes %v and deletes %v", got, c.Deletes)
		}
	case <-time.After(time.Minute):
		t.Error("a new file changes nothing")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestStreamsThatCannotBeRead(t *testing.T) {
	for want, o := range map[string]Options{
		"<standard input>: cannot be read: broken; check the file system":     {Stdin: iotest.ErrReader(errors.New("broken"))},
		"<standard input>: is larger than 1 MiB; split it into several files": {Stdin: strings.NewReader(strings.Repeat("#", 1<<20+1)), MaxFileSize: 1 << 20},
		"-: does not exist; check the path":                                   {},
	} {
		if _, err := New([]string{"-"}, o); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestUnservedKinds: what asks for traffic or its protection is warned of, and the rest is not.
func TestUnservedKinds(t *testing.T) {
	for kind, warned := range map[string]bool{
		"networking.k8s.io/v1 Ingress": true, "networking.k8s.io/v1 IngressClass": false, "networking.k8s.io/v1 NetworkPolicy": false, "apps/v1 Deployment": false, "v1 Pod": false,
		"gateway.envoyproxy.io/v1alpha1 SecurityPolicy": true, "gateway.envoyproxy.io/v1alpha1 EnvoyPatchPolicy": true, "security.istio.io/v1 AuthorizationPolicy": true,
		"networking.k8s.io/v1beta1 Ingress": true, "extensions/v1beta1 Ingress": true, "extensions/v1beta1 Deployment": false,
		"gateway.envoyproxy.io/v1alpha1 Backend": true, "gateway.envoyproxy.io/v1alpha1 ClientTrafficPolicy": true, "gateway.envoyproxy.io/v1alpha1 EnvoyExtensionPolicy": true,
		"gateway.envoyproxy.io/v1alpha1 EnvoyProxy": true, "gateway.envoyproxy.io/v1alpha1 HTTPRouteFilter": true,
		"cilium.io/v2 CiliumEnvoyConfig": true, "cilium.io/v2 CiliumClusterwideEnvoyConfig": true, "cilium.io/v2alpha1 CiliumGatewayClassConfig": true, "cilium.io/v2 CiliumNetworkPolicy": false,
		"gateway.solo.io/v1 VirtualService": true, "notsolo.io/v1 Thing": false, "traefik.io/v1alpha1 Middleware": true,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Chdir(t.TempDir())
			apiVersion, name, _ := strings.Cut(kind, " ")
			write(t, "a.yaml", "{apiVersion: "+apiVersion+", kind: "+name+", metadata: {name: n}}\n")
			got := source(t, ".").Load().Problems
			if len(got) != 1 || !got[0].Ignored || got[0].Warning != warned {
				t.Fatalf("got %+v", got)
			}
			if effect := strings.Contains(got[0].Message, "has no effect"); effect != warned || strings.Contains(got[0].Remedy, "nothing needs") == warned {
				t.Error(got[0])
			}
		})
	}
}
