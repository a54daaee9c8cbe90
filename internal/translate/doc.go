// Package translate turns Kubernetes objects into what the data plane needs (config resources) and what users see (statuses). It is
// the only place that knows the meaning of the Gateway API.
//
// Everything here is a pure function on package incremental: a function reads what it needs through a View and runs again when that
// has changed. Functions that belong together are a part, such as listeners or routes: a struct with the collections that other
// parts may read. Its constructor takes what it reads, so New in translator.go, where all parts are made, shows the data flow. Each
// kind and policy has its own file. What depends on one object alone is in packages of its own: rule (rules and their filters),
// certificate, gateway, listener, parameters, backendtraffic (BackendTrafficPolicies), tlsoption. Package policy has what policies
// have in common, package condition makes conditions and messages, and package support lists the supported features.
//
// It must never import source, proxy, an I/O package, a clock, randomness or a logger; internal/archtest has the test.
// lastTransitionTime is therefore zero in the statuses; package status sets it.
package translate
