// Package charts tests the charts with Helm's own engine: what they render, what
// they refuse, and that what was copied or rendered into the repository is up to date. It is a
// module of its own, so that nothing Helm needs is ours; it must never import the product's
// packages but api.
package charts
