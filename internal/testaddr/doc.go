// Package testaddr gives tests addresses for the processes they start.
package testaddr
