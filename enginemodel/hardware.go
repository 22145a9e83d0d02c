package enginemodel

import (
	"maps"
	"slices"
)

// What a token of context takes in the KV cache: keys and values of 8 heads of 128
// numbers of 2 bytes in each of a Llama 3's 32 or 80 layers.
const (
	kvBytes8B  = 2 * 8 * 128 * 2 * 32 // 131,072
	kvBytes70B = 2 * 8 * 128 * 2 * 80 // 327,680

	weights8B  = 8.03e9 * 2 // bytes, two for each parameter
	weights70B = 70.6e9 * 2

	gpuBytes  = 80 << 30 // of an H100 or A100
	gpuShare  = 0.9      // of which vLLM takes by default
	gpuWork   = 2 << 30  // activations, graphs, buffers
	kvBlock   = 16       // tokens, vLLM's default
	batchMost = 256      // requests, as in the measurements that the presets are held to
)

// kvBlocks is how many blocks fit beside a model's weights:
//
//	(gpus * (0.9*80 GiB - 2 GiB) - weights) / (bytes a token * 16)
//
// 28,181 for 8B on one GPU, 30,412 for 70B on four, 87,756 on eight.
func kvBlocks(gpus, weights, tokenBytes float64) int {
	return int((gpus*(gpuShare*gpuBytes-gpuWork) - weights) / (tokenBytes * kvBlock))
}

// hardware holds the presets. The seconds of 8b-h100, 8b-a100, 70b-4xh100 and
// 70b-4xa100 come from two public sources. Base and PerContextToken are those of
// steps that only decode, at 1 to 256 requests, in BLIS's model of vLLM
// (inference-sim), which its authors fitted to real runs. PerPrefillToken and
// FreePrefillTokens are the slope and the flat beginning of the kernel times that
// microsoft/vidur measured: of Llama-3-8B and 70B on A100, of Llama-2-7B and 70B on
// H100. BLIS's own time of a prompt token is not used: 0.007 ms for 8B on an A100 is
// seven times what its 312 TFLOPS can do. 70b-8xh100 has Vidur's kernel times at 8
// GPUs, what 70b-4xh100 takes beyond its kernels (2.2 ms), and half its time a token
// of context. Frontend is what BLIS gives a request outside the engine's steps.
// MaxStepTokens are vLLM's defaults for a server on such a GPU.
//
// A test of this package prints how far that is from each of the measurements.
// Steps are within 27 % of Vidur's kernels (4 % in the median), a token without
// prompts beside it within 7 % of BLIS's, with prompts it takes up to 65 % longer
// than there. Engines of 2023 (Splitwise's and DistServe's measurements) took twice
// as long for both.
var hardware = map[string]Params{
	"8b-h100": {
		Base: 6.9e-3, PerPrefillToken: 0.020e-3, FreePrefillTokens: 200, PerContextToken: 7.6e-8,
		MaxStepTokens: 8192, Blocks: kvBlocks(1, weights8B, kvBytes8B),
	},
	"8b-a100": {
		Base: 10.6e-3, PerPrefillToken: 0.070e-3, FreePrefillTokens: 100, PerContextToken: 1.25e-7,
		MaxStepTokens: 2048, Blocks: kvBlocks(1, weights8B, kvBytes8B),
	},
	"70b-4xh100": {
		Base: 16.7e-3, PerPrefillToken: 0.056e-3, FreePrefillTokens: 200, PerContextToken: 4.8e-8,
		MaxStepTokens: 8192, Blocks: kvBlocks(4, weights70B, kvBytes70B),
	},
	"70b-4xa100": {
		Base: 25.7e-3, PerPrefillToken: 0.165e-3, FreePrefillTokens: 100, PerContextToken: 7.8e-8,
		MaxStepTokens: 2048, Blocks: kvBlocks(4, weights70B, kvBytes70B),
	},
	"70b-8xh100": {
		Base: 10.6e-3, PerPrefillToken: 0.031e-3, FreePrefillTokens: 200, PerContextToken: 2.4e-8,
		MaxStepTokens: 8192, Blocks: kvBlocks(8, weights70B, kvBytes70B),
	},
}

// Hardware gives the parameters of a model of 8 or 70 billion parameters, as vLLM
// serves it on a kind of GPU, by a name of HardwareNames.
func Hardware(name string) (Params, bool) {
	p, ok := hardware[name]
	if !ok {
		return Params{}, false
	}
	p.PerRequest = 5e-6
	p.Frontend = 15e-3
	p.MaxBatch, p.BlockSize = batchMost, kvBlock
	return p, true
}

// HardwareNames gives the names that Hardware knows, in order.
func HardwareNames() []string { return slices.Sorted(maps.Keys(hardware)) }
