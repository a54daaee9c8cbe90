// Package provision runs the proxies of Gateways in a cluster. Pure functions turn a translate.ProxySpec into objects (Objects); a
// Provisioner applies them server-side, watches their state and reports it as translate.Infrastructure. It exists so that
// translation stays pure and the proxy does not depend on Kubernetes.
//
// It must not import source, deliver, proxy or cli.
//
// The permissions that it needs, in all namespaces:
//
//	""           serviceaccounts, configmaps, services       get list watch create patch delete
//	apps         deployments, daemonsets                      get list watch create patch delete
//	policy       poddisruptionbudgets                         get list watch create patch delete
//	autoscaling  horizontalpodautoscalers                     get list watch create patch delete
//	""           pods, nodes (metadata)                       list watch
//	gateway.networking.k8s.io  gateways/finalizers            update
//
// The last one is for ownerReferences with blockOwnerDeletion, which the admission plugin OwnerReferencesPermissionEnforcement
// requires.
package provision
