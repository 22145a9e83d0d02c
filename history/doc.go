// Package history keeps the plans of the last day, each with the view that it was made of, in
// a bounded space on disk: it is from these that changes are explained. Without a directory
// the newest few are kept in memory.
package history
