// Package wire is the protocol between a controller and its proxies: delivery.proto and the code generated from it.
//
// It must import nothing of this module but config.
package wire
