module github.com/moongate-dev/moongate/test/nodrop

go 1.27.0

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/client-go v0.37.2
	sigs.k8s.io/gateway-api v1.7.0
)
