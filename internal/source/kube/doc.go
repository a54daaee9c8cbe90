// Package kube reads the objects that translation wants from an API server and follows
// their changes. It exists so that a cluster looks to the rest of the gateway as a folder
// of manifests does: typed objects come out, each only if something changed that
// translation could read.
//
// # What is kept
//
// One copy of every object, without what nobody here reads. Of Services, EndpointSlices
// and Namespaces only the fields that translation reads; of kinds with a status also the
// status and the resourceVersion, for Get. Of Secrets the
// contents of those that Fetch is asked for, and of no other anything: they are read one by
// one, read again when they change, and dropped when they are no longer needed.
//
// An object that does not fit its type stays as it was and is reported in the log; others of
// its kind are not kept away by it. One that fits but for its status is read without that, and
// must get none from us. A ReferenceGrant that does not fit goes: its last version may permit
// what the newest one does not.
//
// # What is watched
//
// A kind is watched while the API server serves it. CustomResourceDefinitions are watched
// by their metadata, and what is served is asked again when one of them changes. An object
// that only an older version than v1 can give is read as if it were of v1.
//
// While the API server is away nothing is deleted; afterwards the differences come out,
// also where the server has forgotten what happened meanwhile, or where its data were restored from a backup.
//
// A kind that cannot be listed for 30 s while the API server answers is gone on without, and joins
// when it can be, unless what is served depends on it: for that the start waits, since proxies keep what they have.
// Of several namespaces one of which all that is essential is forbidden for so long is gone on without, unless a GatewayClass has its
// parameters there. Nothing is told of it until all that is essential there has been listed, and then all at once.
// While Secrets cannot be watched, the needed ones are read each minute.
//
// # Permissions
//
// All of these in the whole cluster:
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
// With Options.Namespaces, configmaps, services, secrets, endpointslices and all but gatewayclasses of the last four groups
// are read in these namespaces only, by a watch for each.
//
// Reading /apis/<group>/<version> needs the ClusterRole system:discovery, which every
// account has unless somebody took it away. Nothing is written.
//
// It imports neither translate nor proxy.
package kube
