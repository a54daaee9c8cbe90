// Package auth says who is at the other end of a delivery stream. A Verifier knows the
// controller which pod's ServiceAccount token it was shown; an Authority makes the
// certificates by which proxies know the controller, and derives secrets that all replicas
// share. It exists so that neither the delivery protocol nor the controller's wiring handles keys.
//
// Tokens are verified offline against cached signing keys: an API server that is down does
// not lock proxies out. What it costs: a token stays good until it expires, an hour at
// most by default, even where its pod or ServiceAccount was deleted meanwhile.
//
// What it needs of an API server: get of the URLs /.well-known/openid-configuration and
// /openid/v1/jwks, and in the controller's namespace create of Secrets, and get and
// update of the Secret moongate-ca.
//
// It must import nothing else of this module.
package auth
