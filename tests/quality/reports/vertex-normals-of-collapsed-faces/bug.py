import numpy as np
import torch
from torch import nn


def face_frames(vertices, faces):
    triangles = vertices[faces]
    edges = np.stack([triangles[:, (i + 1) % 3] - triangles[:, i] for i in range(3)], axis=1)
    lengths = np.linalg.norm(edges, axis=2)
    units = edges / np.where(lengths > 0, lengths, 1.0)[..., None]
    cosines = -(units * np.roll(units, 1, axis=1)).sum(axis=2)
    angles = np.arccos(np.clip(cosines, -1, 1))
    normals = np.cross(edges[:, 0], edges[:, 1])
    norm = np.linalg.norm(normals, axis=1, keepdims=True)
    flat = norm[:, 0] == 0
    angles[flat] = 0.0
    return normals / np.where(norm > 0, norm, 1.0), angles


def weighted_vertex_normals(vertex_count, faces, face_normals, face_angles):
    """Normals of vertices, each face weighted by its angle there."""
    summed = np.zeros((vertex_count, 3), np.float64)
    for vertex in range(vertex_count):
        face_index, corner = np.where(faces == vertex)
        surrounding_angles = face_angles[face_index, corner]
        weights = surrounding_angles / surrounding_angles.sum()
        summed[vertex] = weights @ face_normals[face_index]
    return summed


class PointFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, positions, normals):
        return self.mlp(torch.cat([positions, normals], dim=-1)).amax(dim=0)


torch.manual_seed(0)
vertices = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 1], [0.5, 0.5, 1]], dtype=np.float64)
# the scanner wrote the apex twice; vertex 5 has no face but the collapsed one
faces = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4], [2, 1, 0], [3, 2, 0], [4, 5, 4]])
normals = weighted_vertex_normals(len(vertices), faces, *face_frames(vertices, faces))

model = PointFeatures()
logits = model(torch.as_tensor(vertices, dtype=torch.float32), torch.as_tensor(normals, dtype=torch.float32))
loss = nn.functional.cross_entropy(logits[None], torch.tensor([1]))
loss.backward()
print("loss", loss.item())
