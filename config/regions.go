package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Region is a network place.
type Region struct {
	// Name is what clusters and engines call it. Required.
	Name string `yaml:"name"`
	// Coordinates are its latitude, -90 to 90, and longitude, -180 to 180, in degrees:
	// [50.1, 8.7]. Required.
	Coordinates []float64 `yaml:"coordinates"`
}

const (
	earthRadius = 6371    // km
	lightSpeed  = 200_000 // km/s, in fibre
	// leastDistance is what a round trip takes beyond the way.
	leastDistance = Duration(time.Millisecond)
)

// engineRegions lists the regions that the file says engines are in.
func (c *Config) engineRegions() (out []string) {
	add := func(region string) {
		if region != "" && !slices.Contains(out, region) {
			out = append(out, region)
		}
	}
	for _, e := range c.Engines {
		add(e.Region)
	}
	for _, s := range c.Discover {
		for _, region := range slices.Sorted(maps.Values(s.Kubernetes.Zones)) {
			add(region)
		}
		add(s.Region)
	}
	return out
}

func (c *Config) region(name string) *Region {
	i := slices.IndexFunc(c.Regions, func(r Region) bool { return r.Name == name && len(r.Coordinates) == 2 })
	if i < 0 {
		return nil
	}
	return &c.Regions[i]
}

// Place is where a region is: latitude and longitude in degrees; nil where nobody says.
func (c *Config) Place(region string) []float64 {
	if r := c.region(region); r != nil {
		return r.Coordinates
	}
	return nil
}

// geography is the round trip that the places of two regions let expect: twice the
// great circle at the speed of light in fibre, and a millisecond.
func (c *Config) geography(a, b string) (Duration, bool) {
	x, y := c.region(a), c.region(b)
	if x == nil || y == nil {
		return 0, false
	}
	km := greatCircle(x.Coordinates, y.Coordinates)
	return leastDistance + Duration(2*km/lightSpeed*float64(time.Second)), true
}

// greatCircle is the way between two places over the earth in km, by the haversine
// formula, which is exact where they are near.
func greatCircle(a, b []float64) float64 {
	const radians = math.Pi / 180
	lat, long := (b[0]-a[0])*radians, (b[1]-a[1])*radians
	h := math.Pow(math.Sin(lat/2), 2) + math.Cos(a[0]*radians)*math.Cos(b[0]*radians)*math.Pow(math.Sin(long/2), 2)
	return 2 * earthRadius * math.Asin(math.Sqrt(min(h, 1)))
}

// setGeography gives clusters the distances that nobody wrote down, as far as places
// are known.
func (c *Config) setGeography() {
	if len(c.Regions) == 0 {
		return
	}
	needed := c.engineRegions()
	for i := range c.Clusters {
		cl := &c.Clusters[i]
		for _, r := range c.Regions {
			if len(c.Discover) == 0 && !slices.Contains(needed, r.Name) {
				continue
			}
			d, ok := c.geography(cl.Region, r.Name)
			if _, written := cl.Distances[r.Name]; !ok || written {
				continue
			}
			if cl.Distances == nil {
				cl.Distances = map[string]Duration{}
			}
			cl.Distances[r.Name] = d
		}
	}
}

// WrittenDistance says whether the file has a cluster's distance to a region, rather
// than the regions' places.
func (c *Config) WrittenDistance(cluster, region string) bool {
	i := slices.IndexFunc(c.Clusters, func(cl Cluster) bool { return cl.Name == cluster })
	return c.has(fmt.Sprintf("clusters[%d].distances.%s", i, region))
}

func (k *checker) regions() {
	used := k.c.engineRegions()
	for _, cl := range k.c.Clusters {
		used = append(used, cl.Region)
	}
	names := map[string]bool{}
	for i, r := range k.c.Regions {
		path := fmt.Sprintf("regions[%d]", i)
		k.name(path+".name", r.Name, names)
		if r.Name != "" && len(k.c.Discover) == 0 && !slices.Contains(used, r.Name) {
			k.fail(path+".name", "no cluster or engine lies in region %q%s", r.Name, suggestion(r.Name, used))
		}
		if len(r.Coordinates) != 2 {
			k.fail(path+".coordinates", "want latitude and longitude in degrees, like [50.1, 8.7]")
			continue
		}
		k.inRange(path+".coordinates[0]", r.Coordinates[0], -90, 90)
		k.inRange(path+".coordinates[1]", r.Coordinates[1], -180, 180)
	}
}
