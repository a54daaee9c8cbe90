// Package nodrop proves that the clients of a Gateway notice nothing when parts of
// the cluster or of Moongate fail or change. It exists because such a promise is
// only worth what was tried. Its tests run within the test cluster's network,
// under the build tag nodrop; the Makefile starts all of it. It must never import the
// product: what it does, a cluster's administrator could do.
package nodrop
