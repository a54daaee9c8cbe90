// Package alerts tests what the chart has for Prometheus and Grafana, by Prometheus' own engine: each alerting rule fires on the series that it is for, and is silent on
// those of ordinary work; each query of the Grafana dashboard finds series that docs/metrics.md promises. It is a module of its own, so that nothing Prometheus needs
// is a dependency of Moongate.
package alerts
