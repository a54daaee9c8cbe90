package provision

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/moongate-dev/moongate/internal/translate"
)

// Object is an object of Kubernetes.
type Object interface {
	metav1.Object
	runtime.Object
}

// Settings are what all Gateways have in common.
type Settings struct {
	ControllerName    string
	Image             string // unless the plan's parameters name another
	ControllerAddress string // host:port
	CAPEM             []byte
}

// Objects are what a plan needs, in the order in which to apply them.
func Objects(plan *translate.Plan, s Settings) ([]Object, error) { return nil, nil }
