// Package nodrop proves on the test cluster what Moongate promises about failures: that a
// Gateway's clients notice nothing when parts of Moongate or of the cluster fail or
// change, that a proxy gets nothing that is another Gateway's, and that controllers
// that share routes leave each other's entries alone. It exists because such promises are
// only worth what was tried. Its tests run within the cluster's network, under the build
// tag nodrop; the Makefile above starts all of it.
//
// It must never import the product: what it does, an administrator of a cluster could do.
package nodrop
