package config

// NoTimeout is the value of a timeout of a Rule that is written as 0s: there is none, and a policy for the rule sets none either.
const NoTimeout = -1
