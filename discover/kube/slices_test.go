package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wardrop-lb/wardrop/config"
)

func ptr[T any](v T) *T { return &v }

func endpoint(pod, ip string, edit ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true)}}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	}
	for _, f := range edit {
		f(&e)
	}
	return e
}

func slice(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "models", Labels: map[string]string{"kubernetes.io/service-name": "vllm"}},
		Endpoints:  endpoints, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8000)), Protocol: ptr(corev1.ProtocolTCP)}},
	}
}

func notReady(e *discoveryv1.Endpoint) {
	e.Conditions.Ready, e.Conditions.Serving = ptr(false), ptr(false)
}

func terminating(e *discoveryv1.Endpoint) {
	e.Conditions.Ready, e.Conditions.Terminating = ptr(false), ptr(true)
}

func zone(z string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.Zone = &z }
}

func TestConditions(t *testing.T) {
	f := found(config.Source{Scheme: "http"}, []*discoveryv1.EndpointSlice{slice("s",
		endpoint("ready", "10.0.0.1"), endpoint("starting", "10.0.0.2", notReady), endpoint("leaving", "10.0.0.3", terminating),
		endpoint("unsaid", "10.0.0.4", func(e *discoveryv1.Endpoint) { e.Conditions = discoveryv1.EndpointConditions{} }),
		endpoint("", "10.0.0.5"), endpoint("nowhere", "", func(e *discoveryv1.Endpoint) { e.Addresses = nil }),
	)})
	require.Empty(t, f.Refused)
	require.Equal(t, []config.Engine{
		{Name: "ready", URL: "http://10.0.0.1:8000"}, {Name: "leaving", URL: "http://10.0.0.3:8000", Drain: true},
		{Name: "unsaid", URL: "http://10.0.0.4:8000"}, {URL: "http://10.0.0.5:8000"},
	}, f.Engines)
}

// A slice that is behind, and one per family, make no second engine.
func TestEachEngineOnce(t *testing.T) {
	six := slice("a-six", endpoint("one", "fd00::1"))
	six.AddressType = discoveryv1.AddressTypeIPv6
	only := slice("only-six", endpoint("three", "fd00::3"))
	only.AddressType = discoveryv1.AddressTypeIPv6
	f := found(config.Source{Scheme: "http"}, []*discoveryv1.EndpointSlice{six, only,
		slice("b", endpoint("one", "10.0.0.1", terminating), endpoint("two", "10.0.0.2")), slice("c", endpoint("one", "10.0.0.1"))})
	require.Equal(t, []config.Engine{
		{Name: "one", URL: "http://10.0.0.1:8000"}, {Name: "two", URL: "http://10.0.0.2:8000"}, {Name: "three", URL: "http://[fd00::3]:8000"},
	}, f.Engines)
}

func TestRegions(t *testing.T) {
	said := slice("said", endpoint("a", "10.0.0.1", zone("z1")))
	said.Annotations = map[string]string{keyRegion: "annotated", keyKind: "llamacpp", keyModels: "org/m, n"}
	labelled := slice("labelled", endpoint("b", "10.0.0.2", zone("z1")))
	labelled.Labels[keyRegion] = "labelled"
	plain := slice("plain", endpoint("c", "10.0.0.3", zone("z1")), endpoint("d", "10.0.0.4", zone("z2")),
		endpoint("e", "10.0.0.5", func(e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}}
		}), endpoint("f", "10.0.0.6"))
	all := []*discoveryv1.EndpointSlice{said, labelled, plain}
	regions := func(s config.Source) map[string]string {
		s.Scheme = "http"
		out := map[string]string{}
		for _, e := range found(s, all).Engines {
			out[e.Name] = s.Fill(e).Region
		}
		return out
	}
	require.Equal(t, map[string]string{"a": "annotated", "b": "labelled", "c": "z1", "d": "z2", "e": "z1", "f": ""}, regions(config.Source{}))
	require.Equal(t, map[string]string{"a": "annotated", "b": "labelled", "c": "eu", "d": "us", "e": "eu", "f": "us"},
		regions(config.Source{Region: "us", Kubernetes: config.KubernetesSource{Zones: map[string]string{"z1": "eu"}}}))
	e := found(config.Source{Scheme: "http"}, all).Engines
	for _, x := range e {
		if x.Name == "a" {
			require.Equal(t, "llamacpp", x.Kind)
			require.Equal(t, []string{"org/m", "n"}, x.Models)
		}
	}
}

func TestPorts(t *testing.T) {
	s := slice("s", endpoint("a", "10.0.0.1"))
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr("metrics"), Port: ptr(int32(9000))},
		discoveryv1.EndpointPort{Name: ptr("quic"), Port: ptr(int32(8443)), Protocol: ptr(corev1.ProtocolUDP)})
	look := func(port string) (string, []string) {
		f := found(config.Source{Scheme: "http", Kubernetes: config.KubernetesSource{Port: port}}, []*discoveryv1.EndpointSlice{s})
		if len(f.Engines) == 0 {
			return "", f.Refused
		}
		return f.Engines[0].URL, f.Refused
	}
	for port, want := range map[string]string{"http": "http://10.0.0.1:8000", "metrics": "http://10.0.0.1:9000", "9000": "http://10.0.0.1:9000", "quic": "", "x": "", "": ""} {
		got, refused := look(port)
		require.Equal(t, want, got, port)
		require.Equal(t, want == "", len(refused) == 1)
	}
}

// Every selector that a configuration may hold is one that Kubernetes takes.
func FuzzSelectors(f *testing.F) {
	for _, s := range []string{"a=b", "a == b , !c", "x.y/z in (a, b),d", "a notin (b)", "a!=b", "a=", "in in (in)", "a in(b)", "a=b=c", "!a=b", "a in ()", ",", "a,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, selector string) {
		c := "clusters: [{name: a, region: eu, distances: {eu: 2ms}}]\ndiscover: [{kubernetes: {selector: "
		for _, r := range selector {
			if r < ' ' || r > '~' || r == '\'' {
				return // how YAML writes it is not what is tried
			}
		}
		_, err := config.Parse("f.yaml", []byte(c+"'"+selector+"'}}]\n"))
		if err != nil {
			return
		}
		if _, err := labels.Parse(selector); err != nil {
			t.Fatalf("%q passes, and is none: %v", selector, err)
		}
	})
}
