// Package auth authenticates both ends of a delivery stream. A Verifier determines the pod of a ServiceAccount token; an Authority
// creates the certificates by which proxies verify the controller, and derives secrets that all replicas share. It exists so that
// neither the delivery protocol nor the controller handles keys.
//
// Tokens are verified offline with cached signing keys: proxies can connect while the API server is unavailable. The cost: a token
// is accepted until it expires, by default after at most one hour, even if its pod or ServiceAccount was deleted.
//
// Required permissions: get of the URLs /.well-known/openid-configuration and /openid/v1/jwks, and in the controller's namespace
// create of Secrets, and get and update of the Secret moongate-ca.
//
// It must import nothing else of this module.
package auth
