// Package reconcile is the control loop: it owns the translator, passes objects and the state of this host or of the proxies to it,
// and commits; it passes configuration to package deliver, and publishes statuses once the configuration that they report is served.
// It exists so that a status reports Programmed only for what is served. Standalone has its proxy in this process, Cluster has
// proxies in other processes: two variants of one design.
//
// It must not import source, provision, status/writer or cli.
package reconcile
