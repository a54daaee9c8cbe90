// Command bench compares Moongate with nginx and HAProxy: CPU time per request,
// memory per idle connection, cost of many routes, latency of a route edit. It
// exists because "fast" is only worth saying with a figure that anybody can measure
// again; docs/performance.md explains the method. It runs each proxy as a process
// of its own and must never import Moongate's packages.
package main
