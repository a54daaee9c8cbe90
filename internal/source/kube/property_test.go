package kube

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Whatever happens, and however the watch is disturbed, the sum of all Changes and of what
// Fetch returned is what the server has.
func TestChangesAddUp(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		s.install(nil)
		c := consume(t, s)
		c.next()
		wanted := map[string]bool{}
		for range 60 {
			for range random.IntN(12) {
				disturbObjects(random, s, c, wanted)
			}
			switch random.IntN(8) {
			case 0:
				s.compact()
			case 1:
				s.stop()
				s.start()
			}
			for random.IntN(2) == 0 {
				select {
				case change := <-c.changes:
					c.takeAny(change)
				default:
				}
			}
		}
		deadline := time.After(patient)
		for difference := "unknown"; difference != ""; {
			select {
			case change := <-c.changes:
				c.takeAny(change)
			case <-time.After(20 * time.Millisecond):
			case <-deadline:
				t.Fatalf("the sum is not what the server has: %s", difference)
			}
			difference = c.difference(s, wanted)
		}
	})
}

func disturbObjects(random *rand.Rand, s *apiServer, c *consumer, wanted map[string]bool) {
	n := fmt.Sprint("n", random.IntN(8))
	switch random.IntN(8) {
	case 0:
		s.remove(gatewayGroup+"/httproutes", "team", n)
	case 1:
		s.remove("services", "team", n)
	case 2:
		s.remove("secrets", "team", n)
	case 3:
		s.putService(n, int64(80+random.IntN(3)))
	case 4:
		s.putRoute(n, "a.example", fields{"status": fields{"parents": []any{fields{"controllerName": fmt.Sprint(random.IntN(100))}}}})
	case 5:
		s.putRoute(n, fmt.Sprint("h", random.IntN(3)), nil)
	case 6:
		s.putSecret(n, encoded(fmt.Sprint(random.IntN(5))))
	case 7:
		wanted[n] = random.IntN(2) == 0
		c.fetch(SecretRequest{"team", n, wanted[n]})
	}
}

// takeAny is take for Secrets that were wanted and not found, which are deleted nonetheless.
func (c *consumer) takeAny(change Change) {
	for _, id := range change.Deletes {
		if id.Kind == kind.Secret.Name && c.objects[id] == nil {
			c.objects[id] = &corev1.Secret{}
		}
	}
	c.take(change)
}

// difference says in what the consumer differs from the server, "" for nothing.
func (c *consumer) difference(s *apiServer, wanted map[string]bool) string {
	count := map[string]int{}
	for id, o := range c.objects {
		count[id.Kind]++
		var there, here string
		switch o := o.(type) {
		case *gwv1.HTTPRoute:
			if object := s.get(gatewayGroup+"/httproutes", "team", id.Name); object != nil {
				there = fmt.Sprint(object["metadata"].(fields)["resourceVersion"], object["spec"].(fields)["hostnames"])
			}
			if now, ok := c.Get(id); ok {
				here = fmt.Sprint(now.GetResourceVersion(), o.Spec.Hostnames)
			}
		case *corev1.Service:
			there = fmt.Sprint(s.get("services", "team", id.Name))
			if here = fmt.Sprintf("port:%d ", o.Spec.Ports[0].Port); strings.Contains(there, here) {
				there = here
			}
		case *corev1.Secret:
			if object := s.get("secrets", "team", id.Name); object != nil && wanted[id.Name] {
				there = fmt.Sprint(object["data"].(fields)["k"])
			}
			here = encoded(string(o.Data["k"]))
		}
		if here != there {
			return fmt.Sprintf("%v is %q, on the server %q", id, here, there)
		}
	}
	secrets := 0
	for n, is := range wanted {
		if is && s.get("secrets", "team", n) != nil {
			secrets++
		}
	}
	if routes, services := s.count(gatewayGroup+"/httproutes"), s.count("services"); count["HTTPRoute"] != routes || count["Service"] != services || count["Secret"] != secrets {
		return fmt.Sprintf("%v, on the server %d routes, %d services, %d wanted Secrets", count, routes, services, secrets)
	}
	return ""
}
