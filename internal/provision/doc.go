// Package provision runs the proxies of Gateways in a cluster. Pure functions turn a
// translate.ProxySpec into objects (Objects), a Provisioner applies them server-side, watches what
// becomes of them and reports it as translate.Infrastructure. It exists so that translation
// stays pure and the proxy knows nothing of Kubernetes.
//
// It must not import source, deliver, proxy or cli.
//
// What it asks of the API server, in all namespaces:
//
//	""           serviceaccounts, configmaps, services       get list watch create patch delete
//	apps         deployments, daemonsets                      get list watch create patch delete
//	policy       poddisruptionbudgets                         get list watch create patch delete
//	autoscaling  horizontalpodautoscalers                     get list watch create patch delete
//	""           pods, nodes (metadata)                       list watch
//	gateway.networking.k8s.io  gateways/finalizers            update
//
// The last one is for ownerReferences with blockOwnerDeletion, which the admission plugin
// OwnerReferencesPermissionEnforcement asks for.
package provision
