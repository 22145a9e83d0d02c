// Package static is the policy of fixed weights: each engine's Weight from
// configuration, spread by the data planes' consistent hashing alone, the same
// for every cluster.
//
// It looks at neither demand nor distance nor load, and it sheds nothing: where
// demand exceeds capacity its plans say so by loads above the caps.
package static
