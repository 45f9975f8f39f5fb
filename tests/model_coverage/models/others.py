"""Models for sound, tables and sequences, and distributions, of many packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.model_coverage.inputs import Call, normal, tokens
from tests.model_coverage.model import Made, model


def _enter(name: str, family: str, package: str, make: Callable[[], Any], *shapes: tuple[int, ...]) -> None:
    def made() -> Made:
        found = make()
        if not isinstance(found, torch.nn.Module):
            function = found
            found = Call(torch.nn.Identity(), lambda _, *args: function(*args))
        return found, normal(*shapes)

    model(name, family, package)(made)


def _audio(name: str, make: Callable[[Any], Any], *shapes: tuple[int, ...]) -> None:
    def made() -> Any:
        import torchaudio

        return make(torchaudio)

    _enter(f"torchaudio {name}", "sound", "torchaudio", made, *shapes)


_audio("spectrogram", lambda a: a.transforms.Spectrogram(64), (800,))
_audio("complex spectrogram", lambda a: a.transforms.Spectrogram(64, power=None), (800,))
_audio("mel spectrogram", lambda a: a.transforms.MelSpectrogram(16000, 64, n_mels=8), (800,))
_audio("MFCC", lambda a: a.transforms.MFCC(16000, 8, melkwargs={"n_fft": 64, "n_mels": 8}), (800,))
_audio(
    "Griffin-Lim",
    lambda a: Call(a.transforms.GriffinLim(64, n_iter=3, rand_init=False), lambda m, x: m(x.abs())),
    (33, 20),
)
_audio(
    "time stretch",
    lambda a: (
        lambda x: a.functional.phase_vocoder(
            torch.stft(x, 64, window=torch.hann_window(64), return_complex=True),
            1.2,
            torch.linspace(0, 100, 33)[:, None],
        ).abs()
    ),
    (800,),
)
_audio("resample", lambda a: a.transforms.Resample(16000, 8000), (800,))
_audio("low-pass biquad", lambda a: lambda x: a.functional.lowpass_biquad(x, 16000, 4000.0), (200,))
_audio(
    "Conformer",
    lambda a: Call(a.models.Conformer(16, 4, 32, 2, 5), lambda m, x: m(x, torch.full((x.shape[0],), 12))[0]),
    (12, 16),
)
_audio("ConvTasNet", lambda a: a.models.ConvTasNet(2, 16, 32, 3, 8, 16, 2, 1), (1, 400))
_audio("DeepSpeech", lambda a: a.models.DeepSpeech(8, 16, 5), (1, 20, 8))


@model("speechbrain ECAPA-TDNN", "sound", "speechbrain")
def _ecapa() -> Made:
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    sizes: dict[str, Any] = {"channels": [16, 16, 48], "kernel_sizes": [3, 3, 1], "dilations": [1, 2, 1]}
    return ECAPA_TDNN(8, lin_neurons=8, attention_channels=8, res2net_scale=4, **sizes), normal((20, 8))


@model("nnAudio CQT", "sound", "nnAudio")
def _cqt() -> Made:
    from nnAudio.features import CQT1992v2

    return CQT1992v2(sr=4000, hop_length=128, fmin=200, n_bins=12, verbose=False), normal((2048,))


@model("julius band-pass filter", "sound", "julius")
def _julius() -> Made:
    import julius

    return julius.BandPassFilter(0.1, 0.3), normal((400,))


def _wavelets() -> Any:
    import pytorch_wavelets

    return Call(pytorch_wavelets.DWTForward(J=2, wave="db2", mode="zero"), lambda m, x: m(x))


_enter("pytorch_wavelets DWT", "image processing", "pytorch-wavelets", _wavelets, (1, 16, 16))


def _msssim() -> Any:
    import pytorch_msssim

    return lambda x, y: pytorch_msssim.ssim(x, y, data_range=1.0, size_average=False)


_enter("pytorch_msssim SSIM", "image processing", "pytorch-msssim", _msssim, (1, 24, 24), (1, 24, 24))


def _quantizer(name: str, **arguments: Any) -> None:
    def make() -> Any:
        import vector_quantize_pytorch

        return getattr(vector_quantize_pytorch, name)(**arguments)

    _enter(f"vector_quantize {name}", "quantizers", "vector-quantize-pytorch", make, (10, 8))


_quantizer("VectorQuantize", dim=8, codebook_size=16)
_quantizer("ResidualVQ", dim=8, codebook_size=16, num_quantizers=2)
_quantizer("FSQ", dim=8, levels=[4, 4, 3])
_quantizer("LFQ", dim=8, codebook_size=16)


@model("x-transformers decoder", "decoders", "x-transformers")
def _x_transformers() -> Made:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True, use_rmsnorm=True, ff_glu=True)
    of_ids = tokens()
    return TransformerWrapper(num_tokens=64, max_seq_len=64, attn_layers=layers), lambda n: (of_ids(n)["input_ids"],)


@model("performer", "encoders", "performer-pytorch")
def _performer() -> Made:
    from performer_pytorch import Performer

    return Performer(dim=16, depth=1, heads=2, dim_head=8, nb_features=8), normal((10, 16))


@model("linformer", "encoders", "linformer")
def _linformer() -> Made:
    from linformer import Linformer

    return Linformer(dim=16, seq_len=12, depth=1, heads=2, k=4), normal((12, 16))


@model("reformer LSHSelfAttention", "encoders", "reformer-pytorch")
def _reformer() -> Made:
    from reformer_pytorch import LSHSelfAttention

    return LSHSelfAttention(dim=16, heads=2, bucket_size=4, n_hashes=2), normal((16, 16))


@model("perceiver", "encoders", "perceiver-pytorch")
def _perceiver() -> Made:
    from perceiver_pytorch import Perceiver

    sizes: dict[str, Any] = {"latent_dim": 16, "num_latents": 4, "latent_dim_head": 8, "cross_dim_head": 8}
    return Perceiver(num_freq_bands=2, max_freq=4.0, depth=1, input_channels=3, **sizes), normal((6, 6, 3))


def _simple(name: str, family: str, package: str, load: Callable[[], Any], *shapes: tuple[int, ...]) -> None:
    _enter(name, family, package, load, *shapes)


def _tabnet() -> Any:
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(6, 2, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(6))


_simple("TabNet", "tables and recurrences", "pytorch-tabnet", _tabnet, (6,))


def _rtdl() -> Any:
    from rtdl import FTTransformer

    return Call(
        FTTransformer.make_default(n_num_features=5, cat_cardinalities=None, d_out=2, n_blocks=1),
        lambda m, x: m(x, None),
    )


_simple("FT-Transformer", "tables and recurrences", "rtdl", _rtdl, (5,))


def _cfc() -> Any:
    from ncps.torch import CfC

    return CfC(4, 8)


_simple("ncps CfC", "tables and recurrences", "ncps", _cfc, (6, 4))


def _ltc() -> Any:
    from ncps.torch import LTC

    return LTC(4, 8)


_simple("ncps LTC", "tables and recurrences", "ncps", _ltc, (5, 4))


def _kan() -> Any:
    from kan import KAN

    return KAN(width=[3, 4, 1], grid=3, k=3, auto_save=False, device="cpu", symbolic_enabled=False)


_simple("pykan KAN", "tables and recurrences", "pykan", _kan, (3,))


def _entmax(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import entmax

        return getattr(entmax, name)

    return make


_simple("entmax sparsemax", "tables and recurrences", "entmax", _entmax("sparsemax"), (8,))
_simple("entmax entmax15", "tables and recurrences", "entmax", _entmax("entmax15"), (8,))


def _sinkhorn() -> Any:
    import geomloss

    return geomloss.SamplesLoss("sinkhorn", blur=0.5, backend="tensorized", diameter=4.0)


_simple("geomloss Sinkhorn", "flows and densities", "geomloss", _sinkhorn, (6, 2), (6, 2))


def _pyro(name: str, make: Callable[[Any], Callable[..., Any]], *shapes: tuple[int, ...]) -> None:
    def made() -> Any:
        import pyro.distributions

        return make(pyro.distributions)

    _enter(f"pyro {name}", "flows and densities", "pyro-ppl", made, *shapes)


_pyro(
    "gamma mixture",
    lambda d: (
        lambda x: d.MixtureSameFamily(d.Categorical(torch.ones(2)), d.Gamma(torch.tensor([1.0, 2.0]), 1.5)).log_prob(
            x.exp()
        )
    ),
    (3,),
)
_pyro(
    "multivariate Student",
    lambda d: lambda x: d.MultivariateStudentT(3.0, torch.zeros(3), torch.eye(3)).log_prob(x),
    (3,),
)
_pyro("von Mises", lambda d: lambda x: d.VonMises(0.0, 2.0).log_prob(x), (3,))
_pyro(
    "LKJ",
    lambda d: (
        lambda x: d.LKJCholesky(3, 1.5).log_prob(torch.linalg.cholesky(torch.corrcoef(x[0]).expand(x.shape[0], 3, 3)))
    ),
    (3, 5),
)
_pyro(
    "hidden Markov model",
    lambda d: (
        lambda x: d.GaussianHMM(
            d.Normal(torch.zeros(2), 1.0).to_event(1),
            torch.eye(2) * 0.9,
            d.Normal(torch.zeros(2), 1.0).to_event(1),
            torch.eye(2),
            d.Normal(torch.zeros(2), 0.5).to_event(1),
        ).log_prob(x)
    ),
    (6, 2),
)


@model("botorch expected improvement", "Gaussian processes", "botorch")
def _botorch() -> Made:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    return LogExpectedImprovement(SingleTaskGP(x, (6 * x).sin()), best_f=0.5), lambda n: (
        normal((1, 1))(n)[0].double(),
    )


@model("open_clip ViT", "images and text", "open_clip_torch")
def _open_clip() -> Made:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    image = CLIPVisionCfg(layers=1, width=32, head_width=8, patch_size=8, image_size=32)
    text = CLIPTextCfg(context_length=8, vocab_size=64, width=32, heads=4, layers=1)
    of_ids, of_images = tokens(8, grows=False), normal((3, 32, 32))
    return CLIP(16, image, text), lambda n: (*of_images(n), of_ids(n)["input_ids"])
