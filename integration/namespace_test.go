package integration

// networkPlace is a network namespace of the test.
type networkPlace struct {
	ports int
}
