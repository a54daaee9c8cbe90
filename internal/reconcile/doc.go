// Package reconcile is the control loop: it owns the translator, gives it objects and what is known of this host or of the
// proxies, and commits; it hands configuration to package deliver, and publishes statuses once what they say is served. It
// exists so that a status says Programmed only of what is served. Standalone has its proxy in this process, Cluster has
// proxies in others: two ways of one design.
//
// It must not import source, provision, status/writer or cli.
package reconcile
