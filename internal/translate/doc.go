// Package translate turns Kubernetes objects into what the data plane needs
// (config resources) and what users are told (statuses). It exists as the one
// place that knows the meaning of the Gateway API.
//
// Everything here is a pure function on package incremental: a function reads
// what it needs through a View and runs again when that has changed. The order
// of declaration in translator.go is the order of the data flow. Each kind
// and policy has its own file; rules and their filters are in package rule, what a
// Gateway alone tells of its listeners in package listener, the making of conditions
// and messages in package condition.
//
// It must never import source, proxy, an I/O package, a clock, randomness or a
// logger; package house has the test. lastTransitionTime is therefore zero in
// the statuses, package status stamps it.
package translate
