// Package kube reads the objects for translation from an API server and watches them for changes. It exists so that a cluster looks
// to the rest of the gateway like a folder of manifests: it emits typed objects, and only if something has changed that translation
// may read.
//
// # What is kept
//
// One copy of every object, without fields that are not used: of Services, EndpointSlices and Namespaces only the fields that
// translation reads; of kinds with a status also the status and the resourceVersion, for Get. Of Secrets, only the content of those
// requested by Fetch: they are read one by one, read again when they change, and dropped when they are no longer needed.
//
// If an object does not fit its type, the previous version is kept and the error is logged; the others of its kind are not affected.
// An object of which only the status does not fit is read without it, and its status is not written. A ReferenceGrant that does not
// fit is removed: its previous version may permit what the newest one does not.
//
// # What is watched
//
// A kind is watched while the API server serves it. CustomResourceDefinitions are watched by their metadata, and discovery runs
// again when one of them changes. An object of a kind that is only served in an older version than v1 is read as if it were of v1.
//
// While the API server is unavailable nothing is deleted; afterwards the differences are emitted, even if the server no longer has
// the history, or if its data was restored from a backup.
//
// The start does not wait longer than 30 s for a kind that cannot be listed while the API server answers; the kind is added when it
// can be listed. If what is served depends on the kind, the start waits, and proxies keep their configuration. If one of several
// namespaces has forbidden all essential kinds for that time, the start does not wait for it either, unless the parameters of a
// GatewayClass are there. Nothing of it is emitted until all essential kinds there have been listed, and then everything at once.
// While Secrets cannot be watched, the needed ones are read every minute.
//
// # Permissions
//
// In the whole cluster:
//
//	""                           namespaces, configmaps, services         list, watch
//	""                           secrets                                  get, list, watch
//	discovery.k8s.io             endpointslices                           list, watch
//	apiextensions.k8s.io         customresourcedefinitions                list, watch
//	certificates.k8s.io          clustertrustbundles                      list, watch
//	gateway.networking.k8s.io    gatewayclasses, gateways, listenersets,  list, watch
//	                             httproutes, grpcroutes, tlsroutes,
//	                             tcproutes, udproutes, referencegrants,
//	                             backendtlspolicies
//	gateway.networking.x-k8s.io  xbackends, xbackendtrafficpolicies,      list, watch
//	                             xlistenersets, xtelemetrypolicies
//	gateway.envoyproxy.io        backendtrafficpolicies                   list, watch
//	moongate.dev                 gatewayparameters, httpfilters           list, watch
//
// With Options.Namespaces, configmaps, services, secrets, endpointslices and all kinds of the last four groups except gatewayclasses
// are read in these namespaces only, with a watch for each.
//
// Reading /apis/<group>/<version> requires the ClusterRole system:discovery, which every account has by default. Nothing is written.
//
// It imports neither translate nor proxy.
package kube
