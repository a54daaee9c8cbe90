// Package deliver delivers generations of configuration to proxies and returns their answers: what they serve, which ports are in
// use, what they cannot apply. It exists so that the control loop does not depend on where proxies are. Local delivers to a proxy in
// this process, Remote to proxies in others.
//
// It must not import translate, reconcile, source, status or cli.
package deliver
