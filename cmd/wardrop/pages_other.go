//go:build !linux

package main

func forgetPages() {}
