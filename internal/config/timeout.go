package config

// NoTimeout is the value of a timeout of a Rule that is written as 0s: there is no timeout, and a policy for the rule does not set
// one either.
const NoTimeout = -1
